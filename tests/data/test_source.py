import pickle
from pathlib import Path

from attmask.data.source import Source
from tests.sources import labels, names, of_files


def labelled(counts: list[int]) -> Source:
    pairs = [(label, i) for label, count in enumerate(counts) for i in range(count)]
    files = [f"{label}/{i:03}.png" for label, i in pairs]
    classes = tuple(map(str, range(len(counts))))
    return of_files(Path("root"), files, [label for label, _ in pairs], classes)


def test_a_subset_keeps_the_order_given_and_the_labels_that_belong_to_it() -> None:
    source = labelled([2, 2]).subset([3, 0]).subset([1, 0, 1])
    assert names(source) == ["0/000.png", "1/001.png", "0/000.png"]
    assert labels(source) == [0, 1, 0]


def test_a_pickled_source_is_the_same() -> None:
    source = labelled([2, 1])
    copy = pickle.loads(pickle.dumps(source))
    assert names(copy) == names(source)
    assert labels(copy) == labels(source)
    assert copy.place(2) == "root/1/000.png"
