import torch
from torch import Tensor, nn

from attmask.mask import Mask
from attmask.models.backbone import BackboneConfig, build_backbone
from attmask.models.heads import HeadConfig
from attmask.models.network import Student, Teacher
from tests.reference import reference_network, tensors, weights


def network(*, shared: bool) -> Student:
    torch.manual_seed(0)
    config = BackboneConfig(name="vit_tiny_patch16_224", patch_size=8, width=24, depth=2, heads=3)
    backbone = build_backbone(config, image_size=16, channels=3)
    head = HeadConfig(prototypes=20, hidden=16, bottleneck=8, shared=shared)
    return Student(backbone, head)


def pictures(count: int, seed: int = 1) -> Tensor:
    return torch.randn(count, 3, 16, 16, generator=torch.Generator().manual_seed(seed))


HIDDEN = Mask.count(
    torch.tensor([[True, False, True, True], [False] * 4, [False, True, False, False]])
)


def test_the_reference_has_no_weight_that_we_do_not_have() -> None:
    ours = dict(reference_network().named_parameters())
    theirs = weights("network")
    assert set(ours) == set(theirs)
    assert {name: p.shape for name, p in ours.items()} == {n: w.shape for n, w in theirs.items()}


def test_images_become_the_references_logits() -> None:
    golden, ours = tensors("network"), Teacher.of(reference_network())
    everything = Mask.count(torch.ones(golden["head_patch"].shape[:2], dtype=torch.bool))
    seen = ours(golden["images"], lambda attention: everything, patch_mean=True)
    wanted = golden["head_patch"].flatten(0, 1)
    torch.testing.assert_close(seen.cls, golden["head_cls"], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(seen.patches, wanted, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(seen.patch_mean, wanted.mean(0), rtol=1e-4, atol=1e-4)


def test_the_student_predicts_what_the_head_makes_of_cls_and_hidden_patches() -> None:
    for shared in (True, False):
        made = network(shared=shared)
        assert (made.patch_head is made.head) == shared
        tokens = made.backbone(pictures(3), HIDDEN.hidden)
        out = made(pictures(3), HIDDEN)
        torch.testing.assert_close(out.cls, made.head(tokens.cls))
        torch.testing.assert_close(out.patches, made.patch_head(tokens.patches[HIDDEN.hidden]))
        assert out.mask is HIDDEN


def test_without_patches_to_predict_there_are_only_logits_of_cls() -> None:
    for shared in (True, False):
        made = network(shared=shared)
        masked, plain = made(pictures(3), HIDDEN, predict_patches=False), made(pictures(3))
        for out in (masked, plain):
            assert (out.cls.shape, out.patches.shape) == ((3, 20), (0, 20))
        torch.testing.assert_close(masked.cls, made(pictures(3), HIDDEN).cls)
        assert not torch.equal(masked.cls, plain.cls), "the patches are hidden all the same"


def test_the_teacher_sees_whole_crops_and_reads_what_its_attention_chooses() -> None:
    for shared in (True, False):
        student = network(shared=shared)
        made = Teacher.of(student)
        tokens = student.backbone(pictures(3))
        asked: list[Tensor] = []

        def choose(attention: Tensor, asked: list[Tensor] = asked) -> Mask:
            asked.append(attention)
            return HIDDEN

        for mean in (True, False):
            out = made(pictures(3), choose, patch_mean=mean)
            torch.testing.assert_close(out.cls, student.head(tokens.cls))
            wanted = student.patch_head(tokens.patches)
            torch.testing.assert_close(out.patches, wanted[HIDDEN.hidden])
            assert (out.patch_mean is not None) == mean
            if out.patch_mean is not None:
                torch.testing.assert_close(out.patch_mean, wanted.mean((0, 1)))
        alone = made(pictures(3), choose, read_patches=False)
        torch.testing.assert_close(alone.cls, student.head(tokens.cls))
        assert alone.patches.shape == (0, 20)
        assert alone.mask is HIDDEN
        assert len(asked) == 3
        for attention in asked:
            torch.testing.assert_close(attention, tokens.attention)


def test_the_teachers_logits_are_exact_under_autocast() -> None:
    made = Teacher.of(network(shared=True))
    with torch.autocast("cpu", torch.bfloat16):
        out = made(pictures(3), lambda attention: HIDDEN, patch_mean=True)
    assert out.patch_mean is not None
    assert {t.dtype for t in (out.cls, out.patches, out.patch_mean)} == {torch.float32}


def test_a_hook_on_every_block_fires_for_student_and_teacher() -> None:
    student = network(shared=True)
    teacher = Teacher.of(student)
    fired: list[nn.Module] = []
    for block in (*student.backbone.blocks, *teacher.backbone.blocks):
        block.register_forward_hook(lambda module, *_: fired.append(module))
    student(pictures(3), HIDDEN)
    assert fired == student.backbone.blocks
    fired.clear()
    teacher(pictures(3), lambda attention: HIDDEN)
    assert fired == teacher.backbone.blocks


def test_the_last_layers_are_those_of_every_head_and_each_counts_once() -> None:
    for shared, heads in ((True, ["head"]), (False, ["head", "own_patch_head"])):
        made = network(shared=shared)
        last = {id(parameter) for parameter in made.last_layers()}
        names = {name for name, p in made.named_parameters() if id(p) in last}
        assert names == {
            f"{head}.last_layer.parametrizations.weight.original{part}"
            for head in heads
            for part in (0, 1)
        }
        assert len(made.last_layers()) == len(names)


def test_a_teacher_begins_as_its_student_and_shares_nothing() -> None:
    for shared in (True, False):
        student = network(shared=shared)
        teacher = Teacher.of(student)
        assert (teacher.patch_head is teacher.head) == shared
        ours, theirs = teacher.state_dict(), student.state_dict()
        assert list(ours) == list(theirs)
        for name, tensor in ours.items():
            assert torch.equal(tensor, theirs[name])
            assert tensor.data_ptr() != theirs[name].data_ptr()
        assert not any(p.requires_grad for p in teacher.parameters())
