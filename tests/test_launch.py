import os

import pytest

from attmask import launch
from attmask.launch import first_host

TASKS = {
    "SLURM_JOB_ID": "4711",
    "SLURM_STEP_ID": "2",
    "SLURM_STEP_NUM_TASKS": "20",
    "SLURM_PROCID": "17",
    "SLURM_LOCALID": "1",
    "SLURM_NODEID": "2",
    "SLURM_STEP_TASKS_PER_NODE": "8(x2),4",
    "SLURM_STEP_NODELIST": "gpu[03-05]",
}
OF_TORCHRUN = ("WORLD_SIZE", "RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


@pytest.fixture(autouse=True)
def _no_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*OF_TORCHRUN, *TASKS):
        monkeypatch.delenv(name, raising=False)


def numbers() -> tuple[int, int, int, int]:
    return (
        launch.launched(),
        launch.launched_rank(),
        launch.launched_here(),
        launch.local_rank(),
    )


def test_without_a_launcher_there_is_one_process() -> None:
    assert numbers() == (1, 0, 1, 0)


def test_the_variables_of_torchrun_count(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in zip(OF_TORCHRUN, ("16", "9", "1", "8", "host", "1234"), strict=True):
        monkeypatch.setenv(name, value)
    assert numbers() == (16, 9, 8, 1)


def test_the_tasks_of_srun_are_processes_that_meet_on_the_first_host(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in TASKS.items():
        monkeypatch.setenv(name, value)
    for name in OF_TORCHRUN:  # so that monkeypatch takes back what is exported
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    assert numbers() == (20, 17, 4, 1)
    launch.export_environment()
    exported = {name: os.environ[name] for name in OF_TORCHRUN}
    port = int(exported.pop("MASTER_PORT"))
    assert exported == {
        "WORLD_SIZE": "20",
        "RANK": "17",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "4",
        "MASTER_ADDR": "gpu03",
    }
    assert 1024 < port < 32768, "a port that the system does not give to others"
    assert launch.has_own_part(), "also once the variables of torchrun are set"


def test_workers_of_torchrun_inside_of_a_task_of_slurm_share_what_it_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in TASKS.items():
        monkeypatch.setenv(name, value)
    for name, value in zip(OF_TORCHRUN, ("160", "137", "1", "8", "host", "1234"), strict=True):
        monkeypatch.setenv(name, value)
    assert not launch.has_own_part()
    assert numbers() == (160, 137, 8, 1)


def test_a_batch_script_without_srun_is_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SLURM_JOB_ID", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID"):
        monkeypatch.setenv(name, TASKS[name])
    monkeypatch.setenv("SLURM_NTASKS", "20")
    assert numbers() == (1, 0, 1, 0)


@pytest.mark.parametrize(
    ("nodes", "host"),
    [
        ("gpu7", "gpu7"),
        ("gpu[03-05,9],login1", "gpu03"),
        ("a1,b2", "a1"),
        ("rack[2,4]-ib", "rack2-ib"),
        ("node[001-128]", "node001"),
    ],
)
def test_the_first_host_of_a_list_of_slurm(nodes: str, host: str) -> None:
    assert first_host(nodes) == host
