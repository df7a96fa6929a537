"""Plain stages: splitters of shard lists, and shards() which deals whole shards; and who splits twice is told."""

import gc
import itertools
import json
import pickle
from collections import Counter

import numpy as np
import pytest
import torch
import webdataset as wds
from hypothesis import example, given
from hypothesis import strategies as st
from torch.utils.data import DataLoader as TorchLoader
from torch.utils.data import DistributedSampler

from fastshard import DataLoader, ShardedIterable, StateMismatchError, orders
from fastshard.webdataset import (
    ShardedWebDataset,
    TarIndex,
    UnevenShardsWarning,
    WholeShards,
    shards,
    split_by_rank,
    split_by_worker,
)
from fastshard.webdataset.whole import Hands, HandsRuns, in_turn, largest_first

SIZES = [3, 4, 5, 6, 7, 8]  # 33 samples
FIRSTS = [0, 3, 7, 12, 18, 25, 33]

quiet = pytest.mark.filterwarnings("ignore::fastshard.webdataset.UnevenShardsWarning")
# webdataset leaves its files to the garbage collector.
untidy = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(scope="module")
def urls(tmp_path_factory):
    """Shards by webdataset's own writer; a sample's number is in its field."""
    folder, number, paths = tmp_path_factory.mktemp("shards"), itertools.count(), []
    for shard, size in enumerate(SIZES):
        paths.append(str(folder / f"shard-{shard}.tar"))
        with wds.TarWriter(paths[-1]) as writer:
            for sample in itertools.islice(number, size):
                writer.write({"__key__": f"{sample:04}", "cls": str(sample).encode()})
    TarIndex.build(paths, progress=False)
    return paths


@pytest.fixture
def be(monkeypatch):
    """Makes this process rank r of P, as torchrun does."""

    def be(rank, num_replicas):
        monkeypatch.setenv("RANK", str(rank))
        monkeypatch.setenv("WORLD_SIZE", str(num_replicas))

    return be


def make(urls, batch_size=None, rank=0, num_replicas=2, **options):
    return shards(urls, batch_size=batch_size, rank=rank, num_replicas=num_replicas, progress=False, **options)


def numbers(samples):
    return [int(sample["cls"]) for sample in samples]


def number_of(samples):
    """A collate_fn."""
    return torch.tensor(numbers(samples))


def check_refused(match, draw):
    """A worker's error keeps the loader's iterator in a cycle; workers that are forked later would find it there."""
    with pytest.raises(ValueError, match=match):
        draw()
    gc.collect()


def flat(batches):
    return [number for batch in batches for number in batch.tolist()]


# shards(): whole shards by their samples


@quiet
@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize(
    ("deal", "uneven", "draws"),
    [
        ("in_turn", "pad", [18, 18]),
        ("in_turn", "drop", [15, 15]),
        ("in_turn", "keep", [15, 18]),
        ("largest_first", "pad", [17, 17]),
        ("largest_first", "drop", [16, 16]),
        ("largest_first", "keep", [17, 16]),
    ],
)
def test_uneven_stream_dealt_by_shard(urls, deal, uneven, draws, num_workers):
    """Shards of 3,4,5,6,7,8 samples over P=2: in turn pad 18/18, drop 15/15, keep 15/18; largest first is evener."""
    ranks = []
    for rank in range(2):
        dataset = make(urls, 4, rank, uneven=uneven, deal=deal)
        loader = TorchLoader(dataset, 4, num_workers=num_workers, collate_fn=number_of)
        ranks.append(flat(loader))
        assert len(ranks[-1]) == len(dataset)
        assert set(ranks[-1]) <= {n for s in dataset.shards_per_rank[rank] for n in range(FIRSTS[s], FIRSTS[s + 1])}
    assert [len(rank) for rank in ranks] == draws
    count = Counter(ranks[0] + ranks[1])
    assert len(count) == (sum(draws) if uneven == "drop" else 33)
    assert count.total() - len(count) == (sum(draws) - 33 if uneven == "pad" else 0)


@given(sizes=st.lists(st.integers(1, 9), min_size=1, max_size=7), num_replicas=st.integers(1, 4))
@example(sizes=SIZES, num_replicas=2)
def test_the_largest_shards_first_leave_ranks_nearly_as_even_as_any_dealing(sizes, num_replicas):
    hands = largest_first(np.array(sizes), num_replicas)
    assert sorted(shard for hand in hands for shard in hand) == list(range(len(sizes)))
    assert sum(map(bool, hands)) == min(len(sizes), num_replicas)
    best = min(
        max(np.bincount(dealt, sizes, num_replicas))
        for dealt in itertools.product(range(num_replicas), repeat=len(sizes))
    )
    assert max(sum(sizes[shard] for shard in hand) for hand in hands) <= best * 4 / 3
    if sizes == SIZES:
        assert hands == [[1, 2, 5], [0, 3, 4]]


@given(
    sizes=st.lists(st.integers(1, 9), min_size=4, max_size=12),
    num_replicas=st.integers(1, 4),
    uneven=st.sampled_from(["pad", "drop", "keep"]),
    deal=st.sampled_from([largest_first, in_turn]),
    stops=st.lists(st.integers(0, 9), max_size=3),
    shuffle=st.booleans(),
)
def test_an_epoch_in_pieces_is_the_epoch_on_every_rank(sizes, num_replicas, uneven, deal, stops, shuffle):
    sizes = np.array(sizes)
    whole = orders.BlockShuffled(sizes, 1, 2) if shuffle else orders.Sequential(int(sizes.sum()))
    order = Hands(whole, sizes, deal(sizes, num_replicas))
    held = tuple(order.samples_per_rank.tolist())
    ids = order.indices(3)
    assert sorted(ids.tolist()) == list(range(sizes.sum()))
    assert order.take(3, np.arange(len(order))[::-1]).tolist() == ids.tolist()[::-1]
    assert (ids.tolist() == order.indices(4).tolist()) or shuffle
    runs = HandsRuns(len(order), num_replicas, uneven, (), held)
    pieces = [[] for _ in held]
    for stop in [*stops, 1000]:
        draws = min(stop, runs.today.most_draws)
        for rank, piece in enumerate(pieces):
            piece += runs.positions(rank, 0, min(draws, runs.today.draws(rank))).tolist()
        assert runs.consumed(draws) == len(set(itertools.chain(*pieces)))
        assert runs.draws_until(runs.consumed(draws)) <= draws
        runs = HandsRuns(len(order), num_replicas, uneven, runs.after(draws), held)
        assert runs.consumed(0) == len(set(itertools.chain(*pieces)))
    length = {"pad": [max(held)] * num_replicas, "drop": [min(held)] * num_replicas, "keep": list(held)}[uneven]
    assert [len(piece) for piece in pieces] == length
    begin = np.cumsum(held) - held
    for rank, piece in enumerate(pieces):
        assert piece == [begin[rank] + draw % held[rank] for draw in range(length[rank])]


@quiet
def test_epochs_differ_and_a_rank_keeps_its_shards(urls):
    dataset = make(urls, uneven="keep", window=1, seed=3)
    mine = [n for shard in dataset.shards_per_rank[0] for n in range(FIRSTS[shard], FIRSTS[shard + 1])]
    epochs = []
    for epoch in range(3):
        dataset.set_epoch(epoch)
        epochs.append(numbers(dataset))
        assert sorted(epochs[-1]) == mine
        touched = [sample["__url__"] for sample in make(urls, uneven="keep", window=1)]
        assert len(list(itertools.groupby(touched))) == 3, "one shard after the other"
    assert len({tuple(epoch) for epoch in epochs}) == 3
    assert numbers(make(urls, uneven="keep", shuffle=False)) == mine
    other = make(urls, uneven="keep", seed=4, window=1)
    other.set_epoch(2)
    assert numbers(other) != epochs[2]


def test_ranks_with_shards_of_one_size_do_not_go_through_them_in_step():
    sizes = np.array([50, 50])
    order = Hands(orders.BlockShuffled(sizes, 0, 8), sizes, in_turn(sizes, 2))
    ids = order.indices(0)
    assert (ids[:50] != ids[50:] - 50).sum() > 40


def test_what_whole_shards_leave_uneven_is_said(urls):
    cures = {
        "pad": "'pad' repeats 3",
        "drop": "'drop' leaves out 3",
        "keep": "'keep' lets some ranks end before others",
    }
    for uneven, cure in cures.items():
        with pytest.warns(UnevenShardsWarning, match=f"2 ranks uneven, with 15 to 18 samples; uneven={cure}"):
            dataset = make(urls, deal="in_turn", uneven=uneven)
        assert dataset.samples_per_rank.tolist() == [15, 18]
    even = make(urls)  # which would raise if it warned
    assert even.samples_per_rank.tolist() == [17, 16]
    assert even.shards_per_rank == [[1, 2, 5], [0, 3, 4]]
    assert isinstance(even, WholeShards)
    with pytest.raises(ValueError, match="deal must be one of 'largest_first', 'in_turn', got deal='fair'"):
        make(urls, deal="fair")


def test_few_shards_are_refused_by_shards(urls, be):
    with pytest.raises(ValueError, match=r"shards\(\) deals whole shards, and there are too few: 1 for 4 ranks"):
        make(urls[:1], num_replicas=4)
    dataset = make(urls[:1], rank=None, num_replicas=None)
    be(3, 4)
    for ask in (len, list, lambda late: list(TorchLoader(late, None, num_workers=1))):
        check_refused("too few: 1 for 4 ranks", lambda ask=ask: ask(dataset))


@quiet
def test_shards_of_a_pipeline_that_was_there(urls):
    """S=3, P=2, K=2: batches are dealt to the workers, so every worker has its own."""
    seen = Counter()
    for rank in range(2):
        stage = make(urls[:3], 2, rank, uneven="keep")
        pipeline = wds.DataPipeline(stage, wds.decode(), wds.to_tuple("cls"), wds.batched(2))
        loader = wds.WebLoader(pipeline, batch_size=None, num_workers=2)
        got = [label for (labels,) in loader for label in labels.tolist()]
        assert got == numbers(make(urls[:3], 2, rank, uneven="keep"))
        seen.update(got)
    assert seen == Counter(range(12))


@quiet
@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_persistent_workers(urls, context):
    """K=2, persistent workers: `set_epoch` in the main process reaches them, and they live on."""
    dataset = make(urls, 4, 1, window=2)
    loader = DataLoader(
        dataset, 4, num_workers=2, persistent_workers=True, multiprocessing_context=context, collate_fn=number_of
    )
    pids = set()
    for epoch in range(3):
        alone = make(urls, 4, 1, window=2)
        for one in (dataset, alone):
            one.set_epoch(epoch)
        batches = iter(loader)
        pids.add(tuple(worker.pid for worker in batches._workers))
        assert flat(batches) == numbers(alone)
    assert len(pids) == 1


@quiet
@pytest.mark.parametrize("uneven", ["pad", "drop", "keep"])
@pytest.mark.parametrize("rank", [0, 1])
def test_a_resume_after_any_batch_gives_the_rest_with_other_workers(urls, uneven, rank):
    def fresh(num_workers=0):
        dataset = make(urls, 4, rank, deal="in_turn", uneven=uneven)
        return DataLoader(dataset, 4, num_workers=num_workers, collate_fn=number_of)

    loader = fresh()
    loader.set_epoch(1)
    whole = [batch.tolist() for batch in loader]
    most = {"pad": 5, "drop": 4, "keep": 5}[uneven]
    for steps in range(most + 1):
        loader = fresh()
        loader.set_epoch(1)
        batches = iter(loader)
        before = [batch.tolist() for batch in itertools.islice(batches, steps)]
        state = json.loads(json.dumps(loader.state_dict()))
        again = fresh(2 * (steps == 2))
        again.load_state_dict(state)
        assert before + [batch.tolist() for batch in again][: 0 if steps == most else None] == whole


@quiet
def test_a_resume_at_another_world_size_is_refused(urls):
    dataset = make(urls, 4)
    with pytest.raises(StateMismatchError, match=r"num_replicas=2, .*num_replicas=4, "):
        make(urls, 2, 0, 4).load_state_dict(dataset.state_at(2))
    state = dataset.state_at(2)
    with pytest.raises(StateMismatchError, match="contradicts itself"):
        make(urls, 4).load_state_dict({**state, "consumed": 5})


# split_by_rank, split_by_worker


def webdataset(urls, **splitters):
    return wds.WebDataset(urls, shardshuffle=False, **splitters)


@untidy
@pytest.mark.parametrize(
    "splitters",
    [
        {"nodesplitter": split_by_rank},  # webdataset's split_by_worker behind it
        {"nodesplitter": split_by_rank, "workersplitter": split_by_worker},
        {"nodesplitter": wds.split_by_node, "workersplitter": split_by_worker},
    ],
)
@pytest.mark.parametrize("num_workers", [0, 1, 3])
def test_shards_are_dealt_in_turn_to_ranks_and_workers(urls, be, splitters, num_workers):
    for rank in range(2):
        be(rank, 2)
        loader = wds.WebLoader(webdataset(urls, **splitters), batch_size=None, num_workers=num_workers)
        mine = [n for shard in range(rank, 6, 2) for n in range(FIRSTS[shard], FIRSTS[shard + 1])]
        assert sorted(numbers(loader)) == mine


@untidy
@pytest.mark.parametrize("in_order", [True, False])
@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_as_stages_in_either_order_and_in_spawned_workers(urls, be, in_order, context):
    seen = Counter()
    for rank in range(2):
        be(rank, 2)
        stages = [split_by_rank, split_by_worker][:: 1 if in_order else -1]
        pipeline = wds.DataPipeline(wds.SimpleShardList(urls[:4]), *stages, wds.tarfile_to_samples())
        loader = TorchLoader(pipeline, None, num_workers=2, multiprocessing_context=context)
        seen.update(numbers(loader))
    assert seen == Counter(range(18))


@untidy
@pytest.mark.parametrize(
    ("num_shards", "num_replicas", "num_workers", "counts"),
    [
        (1, 4, 0, "too few: 1 for 4 ranks; take more shards"),
        (3, 2, 2, "too few: 3 for 2 ranks of 2 workers each; take num_workers of at most 1, more shards"),
        (1, 2, 2, "too few: 1 for 2 ranks of 2 workers each; take more shards"),
    ],
)
def test_few_shards_raise_on_every_rank_with_the_counts(urls, be, num_shards, num_replicas, num_workers, counts):
    for rank in range(num_replicas):
        be(rank, num_replicas)
        dataset = webdataset(urls[:num_shards], nodesplitter=split_by_rank)
        loader = wds.WebLoader(dataset, batch_size=None, num_workers=num_workers)
        cure = "fastshard.webdataset.ShardedWebDataset, which cuts shards by sample"
        check_refused(f"{counts}.*{cure}", lambda loader=loader: next(iter(loader)))


@untidy
def test_few_shards_for_workers_alone_raise_too(urls):
    loader = wds.WebLoader(webdataset(urls[:2], workersplitter=split_by_worker), batch_size=None, num_workers=3)
    check_refused("split_by_worker deals .* too few: 2 for 1 ranks of 3 workers", lambda: list(loader))


@untidy
@pytest.mark.filterwarnings("ignore:WebDataset:UserWarning")
def test_a_list_of_shards_without_end_is_split_without_waiting_for_its_end(urls, be):
    be(1, 2)
    dataset = wds.WebDataset(urls, resampled=True, nodesplitter=split_by_rank, workersplitter=split_by_worker)
    assert len(list(itertools.islice(dataset, 100))) == 100


def test_who_is_pickled_before_it_knows_its_rank_asks_where_it_arrives(urls, be):
    """As torch.multiprocessing.spawn sends datasets to the processes that will be ranks."""
    sent = pickle.dumps((split_by_rank, make(urls, rank=None, num_replicas=None), ShardedIterable(range(9))))
    be(1, 2)
    arrived, dataset, iterable = pickle.loads(sent)
    assert list(arrived(range(9))) == [1, 3, 5, 7]
    assert (dataset.rank, dataset.num_replicas) == (iterable.rank, iterable.num_replicas) == (1, 2)
    known = pickle.dumps(split_by_rank)
    be(0, 1)
    assert list(pickle.loads(known)(range(9))) == [1, 3, 5, 7], "a spawned worker is its rank's, whatever it is told"


# Splitting twice


def identity(samples):
    yield from samples


SPLITTERS = {
    "webdataset's split_by_node": wds.split_by_node,
    "webdataset's split_by_worker": wds.split_by_worker,
    "webdataset's single_node_only": wds.shardlists.single_node_only,
    "fastshard's split_by_rank": split_by_rank,
    "fastshard's split_by_worker": split_by_worker,
}


@pytest.mark.parametrize("name", SPLITTERS)
@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_splitter_behind_a_dataset_of_ours_is_refused(urls, name, num_workers):
    for make_one in (ShardedWebDataset, shards):
        first = make_one(urls, batch_size=2, progress=False)
        pipeline = wds.DataPipeline(first, identity, SPLITTERS[name], wds.decode())
        ours = f"a {type(first).__name__}, which deals to 1 ranks and {max(1, num_workers)} workers"
        loader = wds.WebLoader(pipeline, batch_size=None, num_workers=num_workers)
        check_refused(f"{name} stands behind {ours}", lambda loader=loader: list(loader))


@pytest.mark.parametrize(
    ("stages", "what"),
    [
        ([split_by_rank, wds.split_by_node], "webdataset's split_by_node stands behind split_by_rank"),
        ([split_by_rank, identity, wds.split_by_node], "webdataset's split_by_node stands behind split_by_rank"),
        ([wds.split_by_node, split_by_rank], "webdataset's split_by_node stands before split_by_rank"),
        ([wds.split_by_node, wds.shuffle(9), split_by_rank], "webdataset's split_by_node stands before split_by_rank"),
        ([split_by_rank, wds.shuffle(9), split_by_rank], "fastshard's split_by_rank stands before split_by_rank"),
        ([split_by_worker, split_by_worker], "fastshard's split_by_worker stands before split_by_worker"),
        ([split_by_worker, wds.split_by_worker], "webdataset's split_by_worker stands behind split_by_worker"),
        ([wds.split_by_worker, split_by_worker], "webdataset's split_by_worker stands before split_by_worker"),
    ],
)
def test_two_splitters_of_one_kind_are_refused(urls, stages, what):
    check_refused(what, lambda: list(wds.DataPipeline(wds.SimpleShardList(urls), *stages)))


def test_a_stream_of_ours_behind_another_is_refused(urls):
    inner = ShardedWebDataset(urls, progress=False, rank=0, num_replicas=2)
    with pytest.raises(
        TypeError, match="source must not be split already, got a ShardedWebDataset, which splits itself"
    ):
        ShardedIterable(inner, rank=0, num_replicas=2)
    with pytest.raises(ValueError, match=r"a ShardedIterable stands .* ShardedIterable alone split: rank=0"):
        list(ShardedIterable(wds.DataPipeline(inner), rank=0, num_replicas=2))
    whole = ShardedWebDataset(urls, progress=False, rank=0, num_replicas=1, shuffle=False)
    piped = ShardedIterable(wds.DataPipeline(whole), rank=1, num_replicas=2)
    assert numbers(piped)[:3] == [1, 3, 5]


def test_frameworks_that_split_by_rank_are_refused_unless_the_dataset_has_one(urls):
    """Hugging Face datasets; what accelerate does needs processes, and is in tests/multiprocess."""
    datasets = pytest.importorskip("datasets")
    distributed = pytest.importorskip("datasets.distributed")

    def split(num_replicas):
        ours = ShardedWebDataset(urls, progress=False, shuffle=False, rank=0, num_replicas=num_replicas)
        theirs = datasets.IterableDataset.from_generator(lambda: ({"n": int(sample["cls"])} for sample in ours))
        return [row["n"] for row in distributed.split_dataset_by_node(theirs, 1, 2)]

    with pytest.raises(ValueError, match="datasets's IterableDataset stands behind a ShardedWebDataset"):
        split(2)
    assert split(1) == list(range(1, 33, 2))


def test_torch_itself_refuses_a_sampler(urls):
    with pytest.raises(ValueError, match="expected unspecified sampler"):
        TorchLoader(make(urls), sampler=DistributedSampler(range(33), 2, 0))
