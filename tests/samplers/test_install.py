"""install() puts ours in torch's place for every name of torch's class, and uninstall() takes it back."""

import copy
import inspect
import itertools
import pickle
import subprocess
import sys

import pytest
import torch.utils.data
import torch.utils.data.distributed
from torch.utils.data import DistributedSampler as TorchSampler

import fastshard
from fastshard import DistributedBatchSampler, DistributedSampler, RepeatedEpochError


class OlderSubclass(TorchSampler):
    """What a framework defined before anybody called install."""

    def __init__(self, dataset, extra, **options):
        super().__init__(dataset, **options)
        self.extra = extra


class SubclassWithNew(TorchSampler):
    def __new__(cls, *args, **kwargs):
        made = (
            super().__new__(cls, *args, **kwargs) if TorchSampler.__new__ is not object.__new__ else object.__new__(cls)
        )
        made.marked = True
        return made


@pytest.fixture
def install():
    yield fastshard.install
    fastshard.uninstall()


def make(cls=TorchSampler, n=23, **options):
    return cls(range(n), num_replicas=4, rank=1, **options)


TORCHS_DRAWS = list(make(seed=5))


def test_torchs_name_makes_ours_while_installed(install):
    install()
    assert isinstance(make(), DistributedSampler)
    assert list(make(seed=5)) == list(make(DistributedSampler, seed=5)) != TORCHS_DRAWS
    for name in (torch.utils.data.DistributedSampler, torch.utils.data.distributed.DistributedSampler):
        assert name is TorchSampler
        assert isinstance(name(range(10), 2, 1), DistributedSampler)
    assert list(TorchSampler(range(23), 4, 1, True, 5, False)) == list(make(seed=5))
    assert list(TorchSampler(dataset=range(23), num_replicas=4, rank=1, seed=5)) == list(make(seed=5))
    assert isinstance(TorchSampler[int](range(10), 2, 1), DistributedSampler)


def test_uninstall_restores_torchs_behaviour(install):
    install()
    fastshard.uninstall()
    sampler = make(seed=5)
    assert type(sampler) is TorchSampler
    assert list(sampler) == list(sampler) == TORCHS_DRAWS
    assert vars(sampler).keys() == vars(copy.deepcopy(sampler)).keys()
    assert type(pickle.loads(pickle.dumps(sampler))) is TorchSampler
    with pytest.raises(TypeError):
        make(order="torch")


def test_uninstall_without_install_does_nothing():
    fastshard.uninstall()
    fastshard.uninstall()
    assert type(make()) is TorchSampler


def test_installing_again_after_uninstall_works(install):
    install()
    fastshard.uninstall()
    install(order="torch")
    assert isinstance(make(), DistributedSampler)


@pytest.mark.filterwarnings("ignore::fastshard.EmptyRankWarning")
def test_order_torch_gives_the_ids_that_torch_would_have_given(install):
    cases = list(itertools.product((1, 10, 23, 1000), (1, 3, 8), (0, 42), (True, False), (False, True)))

    def draws():
        found = []
        for n, num_replicas, seed, shuffle, drop_last in cases:
            for rank in range(num_replicas):
                sampler = torch.utils.data.DistributedSampler(range(n), num_replicas, rank, shuffle, seed, drop_last)
                for epoch in range(3):
                    sampler.set_epoch(epoch)
                    found.append(list(sampler))
        return found

    expected = draws()
    install(order="torch")
    assert draws() == expected


def test_options_of_install_reach_the_samplers(install):
    install(order="torch", uneven="keep", on_repeated_epoch="error")
    sampler = TorchSampler(range(23), 4, 3)
    assert (sampler.order.name, sampler.uneven, len(sampler)) == ("torch/1", "keep", 5)
    list(sampler)
    with pytest.raises(RepeatedEpochError):
        list(sampler)
    assert DistributedSampler(range(23), 4, 3).uneven == "pad"  # who names ours says what he wants himself


def test_a_second_install_replaces_the_options(install):
    install(order="torch", uneven="keep")
    install()
    sampler = make()
    assert (sampler.order.name, sampler.uneven) == ("shuffled/1", "pad")


@pytest.mark.parametrize(
    "options",
    [{"order": "random"}, {"uneven": "padd"}, {"on_repeated_epoch": "raise"}],
    ids=lambda options: next(iter(options)),
)
def test_a_wrong_option_raises_in_install_and_leaves_everything_as_it_was(install, options):
    with pytest.raises(ValueError, match="must be one of"):
        install(**options)
    assert type(make()) is TorchSampler


def test_isinstance_holds_for_older_samplers_and_subclasses(install):
    older = make()
    subclassed = OlderSubclass(range(23), "extra", num_replicas=4, rank=1)
    install()
    assert isinstance(older, torch.utils.data.distributed.DistributedSampler)
    assert isinstance(subclassed, torch.utils.data.distributed.DistributedSampler)
    assert isinstance(make(), torch.utils.data.distributed.DistributedSampler)
    assert issubclass(OlderSubclass, torch.utils.data.distributed.DistributedSampler)


def test_subclasses_of_torchs_class_stay_what_they_are(install):
    install()
    sampler = OlderSubclass(range(23), "extra", num_replicas=4, rank=1, seed=5)
    assert (type(sampler), sampler.extra, list(sampler)) == (OlderSubclass, "extra", TORCHS_DRAWS)
    assert SubclassWithNew(range(23), 4, 1, seed=5).marked
    assert list(SubclassWithNew(range(23), 4, 1, seed=5)) == TORCHS_DRAWS
    ours = DistributedSampler(range(23), 4, 1, seed=5)
    assert type(ours) is DistributedSampler
    assert list(DistributedBatchSampler(range(23), 6, 4, 1, seed=5)) == [list(ours)]


def test_samplers_built_before_install_are_copied_and_pickled_as_before(install):
    older, subclassed = make(seed=5), OlderSubclass(range(23), "extra", num_replicas=4, rank=1, seed=5)
    stored = pickle.dumps((older, subclassed))
    install()
    for first, second in (
        (older, subclassed),
        (copy.copy(older), copy.copy(subclassed)),
        copy.deepcopy((older, subclassed)),
        pickle.loads(stored),
        pickle.loads(pickle.dumps((older, subclassed))),
    ):
        assert (type(first), type(second)) == (TorchSampler, OlderSubclass)
        assert list(first) == list(second) == TORCHS_DRAWS


def test_samplers_built_while_installed_stay_ours(install):
    install(order="torch", uneven="keep")
    sampler = make(seed=5)
    sampler.set_epoch(3)
    expected = sampler.indices().tolist()
    stored = pickle.dumps(sampler)
    fastshard.uninstall()
    for other in (sampler, copy.deepcopy(sampler), pickle.loads(stored)):
        assert isinstance(other, DistributedSampler)
        assert (other.epoch, other.uneven, list(other)) == (3, "keep", expected)


def test_signatures_stay_what_they_were(install):
    classes = (TorchSampler, OlderSubclass, DistributedSampler)
    code = "import inspect; from torch.utils.data import DistributedSampler as D; print(inspect.signature(D))"
    torchs = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=200
    ).stdout
    before = [str(inspect.signature(cls.__init__)) for cls in classes]
    install()
    assert [str(inspect.signature(cls.__init__)) for cls in classes] == before
    assert str(inspect.signature(TorchSampler)) == torchs.strip()
    assert list(inspect.signature(OlderSubclass).parameters) == ["dataset", "extra", "options"]
    assert list(inspect.signature(DistributedSampler).parameters)[-3:] == ["order", "uneven", "on_repeated_epoch"]


def test_it_does_not_matter_whether_torchs_name_was_imported_before_or_after():
    code = """
from torch.utils.data import DistributedSampler as Before
from torch.utils.data.distributed import DistributedSampler as AlsoBefore
import torch
class Older(Before): pass
expected = list(Before(range(23), 4, 1, seed=5))
import fastshard
fastshard.install(order="torch")
from torch.utils.data import DistributedSampler as After
for name in (Before, AlsoBefore, After, torch.utils.data.DistributedSampler):
    sampler = name(range(23), 4, 1, seed=5)
    assert isinstance(sampler, fastshard.DistributedSampler), name
    assert isinstance(sampler, Before) and list(sampler) == expected
assert type(Older(range(23), 4, 1, seed=5)) is Older and list(Older(range(23), 4, 1, seed=5)) == expected
print("all of them")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=200)
    assert (done.returncode, done.stdout) == (0, "all of them\n"), done.stderr


def test_an_installed_sampler_can_be_built_again_from_the_names_of_its_arguments(install):
    """As Lightning does: arguments by inspection, values from the attributes."""
    install(order="torch", on_repeated_epoch="error")
    sampler = TorchSampler(range(10), 2, 1, seed=4)
    names = [name for name in inspect.signature(type(sampler).__init__).parameters if name != "self"]
    again = type(sampler)(**{name: getattr(sampler, name) for name in names if name != "order"})
    assert again.on_repeated_epoch == "error"
    assert list(again) == list(sampler)
