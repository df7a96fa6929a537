"""DistributedSampler is torch's sampler to whoever looks, and draws what its order and slice say."""

import copy
import inspect
import itertools
import pickle
import warnings

import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset, Subset, TensorDataset
from torch.utils.data import DistributedSampler as TorchSampler

from fastshard import DistributedBatchSampler, DistributedSampler, Slice, orders
from fastshard.samplers.distributed import CHUNK

POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def make(n=23, num_replicas=4, rank=1, **options):
    return DistributedSampler(range(n), num_replicas=num_replicas, rank=rank, **options)


def test_positional_arguments_are_torchs():
    def positional(cls):
        parameters = inspect.signature(cls.__init__).parameters.values()
        return [(p.name, p.default) for p in parameters if p.kind in POSITIONAL]

    assert positional(DistributedSampler) == positional(TorchSampler)
    others = [p for p in inspect.signature(DistributedSampler).parameters.values() if p.kind not in POSITIONAL]
    assert {p.kind for p in others} == {inspect.Parameter.KEYWORD_ONLY}
    assert {p.name: p.default for p in others} == {"order": "shuffled", "uneven": None, "on_repeated_epoch": "warn"}


def test_it_is_a_torch_sampler_with_torchs_attributes():
    dataset = range(23)
    for drop_last in (False, True):
        ours = DistributedSampler(dataset, 4, 1, True, 42, drop_last)
        torchs = TorchSampler(dataset, 4, 1, True, 42, drop_last)
        assert isinstance(ours, TorchSampler)
        assert ours.dataset is dataset
        for sampler in (ours, torchs):
            sampler.set_epoch(3)
        missing = object()
        attributes = {name: getattr(ours, name, missing) for name in vars(torchs)}
        assert attributes == vars(torchs)
        assert len(ours) == len(torchs)


def test_draws_are_the_order_sliced():
    for n, num_replicas in ((23, 4), (24, 4), (20_000, 3)):
        order = orders.Shuffled(n, 5)
        for rank in range(num_replicas):
            sampler = make(n, num_replicas, rank, seed=5)
            sampler.set_epoch(2)
            assert list(sampler) == Slice(n, rank, num_replicas).indices(order, 2).tolist()


@pytest.mark.filterwarnings("ignore::fastshard.EmptyRankWarning")
@pytest.mark.parametrize("n", [1, 2, 3, 7, 23, 64, 1000])
def test_order_torch_draws_what_torchs_sampler_draws(n):
    for num_replicas, shuffle, seed, drop_last in itertools.product((1, 3, 8), (True, False), (0, 42), (False, True)):
        for rank in range(num_replicas):
            arguments = (range(n), num_replicas, rank, shuffle, seed, drop_last)
            ours, torchs = DistributedSampler(*arguments, order="torch"), TorchSampler(*arguments)
            for epoch in (0, 1, 5):
                ours.set_epoch(epoch)
                torchs.set_epoch(epoch)
                assert list(ours) == list(torchs)


@pytest.mark.parametrize("uneven", ["pad", "drop", "keep"])
@pytest.mark.parametrize("share", [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, 2 * CHUNK + 1])
def test_chunks_join_without_a_seam(share, uneven):
    n = 3 * share + 2
    for rank in range(3):
        sampler = make(n, 3, rank, uneven=uneven) if share else make(n, 2, rank % 2, uneven=uneven)
        expected = sampler.slice.indices(sampler.order, 0).tolist()
        assert list(sampler) == expected
        assert len(expected) == len(sampler) == sampler.num_samples


def test_padding_that_falls_into_a_chunk_of_its_own_is_drawn():
    n = 2 * CHUNK + 1
    sampler = make(n, 2, 1)
    assert (len(sampler), sampler.num_padding) == (CHUNK + 1, 1)
    assert list(sampler)[-1] == sampler.order.index(0, 0)


def test_shuffle_false_is_dataset_order():
    assert list(make(10, 3, 1, shuffle=False)) == [1, 4, 7, 0]
    assert make(10, 3, 1, shuffle=False).order == orders.Sequential(10)
    assert make(10, 3, 1, shuffle=False, order="torch").order == orders.Sequential(10)


def test_indices_are_the_draws_without_drawing():
    sampler = make(23, 4, 3, seed=9)
    sampler.set_epoch(4)
    drawn = list(sampler)
    ids = sampler.indices()
    assert ids.dtype == np.int64
    assert ids.tolist() == drawn
    for start, stop in itertools.combinations_with_replacement(range(7), 2):
        assert sampler.indices(start, stop).tolist() == drawn[start:stop]
    assert sampler.indices(2).tolist() == drawn[2:]
    with pytest.raises(ValueError, match=r"stop must be in \[0, 7\), got stop=7"):
        sampler.indices(0, 7)


def test_asking_for_indices_is_not_a_pass():
    sampler = make(on_repeated_epoch="error")
    for _ in range(3):
        sampler.indices()
    assert len(list(sampler)) == 6


def test_set_epoch_and_assignment_choose_the_epoch():
    sampler = make()
    assert sampler.epoch == 0
    first = sampler.indices().tolist()
    sampler.set_epoch(1)
    assert sampler.epoch == 1
    second = sampler.indices().tolist()
    assert second != first
    sampler.epoch = 0
    assert sampler.indices().tolist() == first
    sampler.set_epoch(2**64 - 1)
    assert list(sampler) == Slice(23, 1, 4).indices(orders.Shuffled(23), 2**64 - 1).tolist()


@pytest.mark.parametrize(
    ("epoch", "error"), [(-1, ValueError), (2**64, ValueError), (1.0, TypeError), (None, TypeError)]
)
def test_a_wrong_epoch_is_refused_and_changes_nothing(epoch, error):
    sampler = make()
    sampler.set_epoch(3)
    with pytest.raises(error, match=f"epoch=.*{epoch}"):
        sampler.set_epoch(epoch)
    with pytest.raises(error, match=f"epoch=.*{epoch}"):
        sampler.epoch = epoch
    assert sampler.epoch == 3


def test_uneven_follows_drop_last():
    assert (make().uneven, make().drop_last, make().num_samples, make().total_size) == ("pad", False, 6, 24)
    dropping = make(drop_last=True)
    assert (dropping.uneven, dropping.drop_last, dropping.num_samples, dropping.total_size) == ("drop", True, 5, 20)
    assert make(uneven="drop").drop_last is True
    assert make(uneven="drop", drop_last=True).uneven == "drop"
    keeping = [make(rank=rank, uneven="keep") for rank in range(4)]
    assert [sampler.num_samples for sampler in keeping] == [6, 6, 6, 5]
    assert {sampler.total_size for sampler in keeping} == {23}
    assert {sampler.drop_last for sampler in keeping} == {False}


def test_num_padding_counts_the_last_draws_that_repeat_a_sample():
    samplers = [make(21, 4, rank) for rank in range(4)]
    assert [sampler.num_padding for sampler in samplers] == [0, 1, 1, 1]
    own = [list(sampler)[: len(sampler) - sampler.num_padding] for sampler in samplers]
    assert sorted(itertools.chain(*own)) == list(range(21))


@pytest.mark.parametrize("uneven", ["pad", "keep"])
def test_drop_last_contradicting_uneven_is_refused(uneven):
    with pytest.raises(ValueError, match=f'drop_last=True means uneven="drop", got uneven={uneven!r}'):
        make(drop_last=True, uneven=uneven)


def test_an_order_instance_is_used_as_it_is():
    order = orders.TorchShuffled(23, 8)
    sampler = make(order=order)
    assert sampler.order is order
    assert sampler.seed == 8
    assert list(sampler) == list(make(order="torch", seed=8))
    assert make(order=order, seed=8).order is order
    assert list(make(order=orders.Sequential(23), shuffle=False)) == [1, 5, 9, 13, 17, 21]
    assert list(make(order=orders.Sequential(23))) == [1, 5, 9, 13, 17, 21]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"order": orders.Shuffled(22)}, ValueError, r"len\(dataset\)=23 ids, got one of 22"),
        ({"order": orders.Shuffled(23), "shuffle": False}, ValueError, "shuffle=False contradicts order=Shuffled"),
        ({"order": orders.Shuffled(23, 4), "seed": 5}, ValueError, "seed=5 contradicts order=Shuffled"),
        ({"order": "random"}, ValueError, "order must be one of 'shuffled', 'torch', got order='random'"),
        ({"order": 3}, TypeError, "order must be a name or an Order, got order=3"),
        ({"order": orders.Shuffled}, TypeError, "order must be a name or an Order, got order="),
        ({"uneven": "padd"}, ValueError, "uneven must be one of 'pad', 'drop', 'keep', got uneven='padd'"),
        (
            {"on_repeated_epoch": "raise"},
            ValueError,
            "on_repeated_epoch must be one of .*, got on_repeated_epoch='raise'",
        ),
        ({"seed": 2**64}, ValueError, r"seed must be in \[-2\^63, 2\^64\), got seed=18446744073709551616"),
        ({"seed": 1.5}, TypeError, r"seed must be an int, got seed=1\.5"),
        ({"seed": None}, TypeError, "seed must be an int, got seed=None"),
        ({"rank": 1.0}, TypeError, r"rank must be an int, got rank=1\.0"),
        ({"num_replicas": "4"}, TypeError, "num_replicas must be an int, got num_replicas='4'"),
    ],
)
def test_a_wrong_argument_is_named(options, error, message):
    with pytest.raises(error, match=message):
        make(**options)


def test_without_a_process_group_rank_and_world_size_must_be_given():
    with pytest.raises((ValueError, RuntimeError), match="process group"):
        DistributedSampler(range(10))


class GrowingDataset:
    def __init__(self, length):
        self.length = length

    def __len__(self):
        return self.length


def test_a_dataset_that_changed_its_length_raises_at_the_next_pass():
    dataset = GrowingDataset(10)
    sampler = DistributedSampler(dataset, 2, 0)
    assert len(list(sampler)) == 5
    sampler.set_epoch(1)
    dataset.length = 12
    message = r"len\(dataset\) was 10 when the sampler was built and is 12"
    with pytest.raises(RuntimeError, match=message):
        iter(sampler)
    with pytest.raises(RuntimeError, match=message):
        sampler.indices()
    dataset.length = 10
    assert len(list(sampler)) == 5


@pytest.mark.parametrize(
    ("name", "value"),
    [("rank", 2), ("num_replicas", 8), ("seed", 1), ("shuffle", False), ("drop_last", True), ("total_size", 20)],
)
def test_a_mutated_attribute_raises_at_the_next_pass(name, value):
    sampler = make()
    before = getattr(sampler, name)
    setattr(sampler, name, value)
    with pytest.raises(RuntimeError, match=f"{name} was {before} when the sampler was built and is {value}"):
        iter(sampler)
    with pytest.raises(RuntimeError, match=f"{name} was {before}"):
        sampler.indices()


@pytest.mark.parametrize(
    "dataset",
    [
        pytest.param(list("abcdefghij"), id="list"),
        pytest.param(range(10), id="range"),
        pytest.param(np.zeros((10, 3)), id="numpy array"),
        pytest.param(torch.zeros(10, 3), id="tensor"),
        pytest.param(dict.fromkeys(range(10)), id="dict"),
        pytest.param(TensorDataset(torch.zeros(10, 3)), id="TensorDataset"),
        pytest.param(Subset(TensorDataset(torch.zeros(30)), list(range(5, 15))), id="Subset"),
        pytest.param(ConcatDataset([TensorDataset(torch.zeros(4)), TensorDataset(torch.zeros(6))]), id="ConcatDataset"),
        pytest.param(GrowingDataset(10), id="a class with len alone"),
    ],
)
def test_any_dataset_with_a_length_will_do(dataset):
    drawn = [list(DistributedSampler(dataset, 2, rank, seed=3)) for rank in range(2)]
    assert sorted(itertools.chain(*drawn)) == list(range(10))
    assert drawn == [list(DistributedSampler(range(10), 2, rank, seed=3)) for rank in range(2)]


def test_copies_and_pickles_continue_at_the_same_epoch():
    sampler = make(seed=6)
    sampler.set_epoch(5)
    expected = sampler.indices().tolist()
    for other in (copy.deepcopy(sampler), pickle.loads(pickle.dumps(sampler))):
        assert other.epoch == 5
        assert list(other) == expected
        other.set_epoch(6)
        assert sampler.epoch == 5
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert list(sampler) == expected  # copies' passes are not this sampler's


def test_a_pickle_made_during_a_pass_does_not_know_of_it():
    sampler = make()
    running = iter(sampler)
    first = next(running)
    other = pickle.loads(pickle.dumps(sampler))
    other.set_epoch(3)  # nobody is running there
    assert [first, *running] == sampler.indices().tolist()


def test_subclasses_may_have_their_own_constructor_and_indices():
    class Doubled(DistributedSampler):
        def __init__(self, dataset):
            super().__init__(dataset, num_replicas=2, rank=1, seed=1)

        def __iter__(self):
            return (2 * sample for sample in super().__iter__())

    assert list(Doubled(range(8))) == [2 * sample for sample in make(8, 2, 1, seed=1)]


def test_passes_end_when_they_are_exhausted_or_abandoned():
    sampler = make(on_repeated_epoch="error")
    abandoned = iter(sampler)
    next(abandoned)
    del abandoned
    with pytest.raises(RuntimeError, match=r"another pass over epoch 0 would repeat its order; call set_epoch"):
        list(sampler)
    sampler.set_epoch(1)
    assert len(list(sampler)) == 6


def test_repeating_dataset_order_is_no_mistake():
    sampler = make(shuffle=False, on_repeated_epoch="error")
    assert list(sampler) == list(sampler) == [1, 5, 9, 13, 17, 21]


def test_ignore_repeats_the_order_in_silence():
    sampler = make(on_repeated_epoch="ignore")
    assert list(sampler) == list(sampler) == sampler.indices().tolist()


@pytest.mark.parametrize("name", ["shuffle", "drop_last"])
@pytest.mark.parametrize("value", ["no", [], None, 2, 0.0, np.array([1, 2])])
def test_a_flag_that_is_no_bool_is_named(name, value):
    with pytest.raises(TypeError, match=rf"{name} must be True or False, got {name}="):
        DistributedSampler(range(10), 2, 0, **{name: value})


def test_a_flag_may_be_what_configurations_make_of_a_bool():
    sampler = DistributedSampler(range(10), 3, 0, shuffle=np.bool_(False), drop_last=1)
    assert (sampler.shuffle, sampler.drop_last, list(sampler)) == (False, True, [0, 3, 6])


def test_sharding_what_is_sharded_is_refused():
    share = DistributedSampler(range(16), 4, 0)
    for dataset in (share, TorchSampler(range(16), 4, 0), DistributedBatchSampler(range(16), 2, 4, 0)):
        with pytest.raises(TypeError, match="would shard it twice"):
            DistributedSampler(dataset, 4, 0)
        with pytest.raises(TypeError, match="would shard it twice"):
            DistributedBatchSampler(dataset, 2, 4, 0)


def test_a_seed_that_has_no_effect_is_refused_and_an_equal_one_is_not():
    assert DistributedSampler(range(10), 1, 0, seed=2**64 - 1, order=orders.Shuffled(10, -1)).seed == -1
    with pytest.raises(ValueError, match="seed=5 contradicts"):
        DistributedSampler(range(10), 1, 0, seed=5, order=orders.Sequential(10))
    assert DistributedSampler(range(10), 1, 0, order=orders.Sequential(10)).shuffle is False


def test_two_samplers_of_torchs_order_on_two_epochs_keep_a_permutation_each():
    """Copies share no cache, or taking turns would compute an epoch for every chunk."""
    sampler = DistributedSampler(range(100), 1, 0, order="torch")
    copied = copy.deepcopy(sampler)
    assert copied.order == sampler.order
    assert copied.order is not sampler.order
