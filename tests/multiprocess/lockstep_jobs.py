"""What the ranks of test_lockstep do. Each returns what this rank saw; the test compares it with what is due."""

import json
import warnings

import torch
import torch.distributed as dist
from torch.utils.data import IterableDataset

from fastshard import DataLoader, DistributedSampler, Ledger, ShardedIterable
from fastshard.ddp import lockstep

COUNTS = (3, 5, 4)  # batches of ranks


def lists():
    """Batches that name their rank and number."""
    rank = dist.get_rank()
    return [(rank, number) for number in range(COUNTS[rank])]


class Numbers:
    """0..n-1, plus 1000 an epoch."""

    def __init__(self, n):
        self.n, self.epoch = n, 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        return iter(range(1000 * self.epoch, 1000 * self.epoch + self.n))


def is_kept(number):
    """A filter that leaves unlike numbers to two ranks, and to three."""
    return number % 1000 % 6 not in (2, 4)


class Kept(Numbers):
    """Numbers after the filter, before any split."""

    def __iter__(self):
        return filter(is_kept, super().__iter__())


class KeptBehind(IterableDataset):
    """The filter behind the split."""

    def __init__(self, dataset):
        self.dataset = dataset

    def set_epoch(self, epoch):
        self.dataset.set_epoch(epoch)

    def __iter__(self):
        return filter(is_kept, self.dataset)


def behind(num_workers, n=61, **options):
    dataset = KeptBehind(ShardedIterable(Numbers(n), batch_size=3, uneven="keep"))
    return DataLoader(dataset, 3, num_workers=num_workers, **options)


def given(batches):
    return [batch.tolist() for batch in batches]


def to_both_ends():
    found = {}
    for end in ("shortest", "longest"):
        for _ in range(2):
            steps = lockstep(lists(), end=end)
            for _ in range(2):
                found[end] = list(steps), steps.dropped, steps.padded
    return found, dist.get_pg_count()


def leave_and_come_again():
    steps, own = lockstep(lists()), torch.ones(1)
    seen = []
    for _ in range(3):
        for batch in steps:
            dist.all_reduce(own)
            seen.append(batch)
            if len(seen) % 2 == 0:
                break
        dist.all_reduce(own)
    return seen, list(steps), own.item()


def a_step_ahead():
    """Rank 1 comes to the end of its first step when rank 0 has begun its second one."""
    store = dist.distributed_c10d._get_default_store()
    seen = []
    for batch in lockstep(lists()):
        seen.append(batch)
        if len(seen) == 2 and dist.get_rank() == 0:
            store.set("second", "begun")
        if len(seen) == 1 and dist.get_rank() == 1:
            store.wait(["second"])
    return seen


def train():
    """DDP over unlike numbers of batches, with an evaluation in lockstep within the training loop."""
    torch.manual_seed(0)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    found = []
    for end in ("shortest", "longest"):
        steps, evaluated = lockstep(lists(), end=end), 0
        seen = []
        for batch in steps:
            optimizer.zero_grad()
            model(torch.tensor([batch], dtype=torch.float32)).sum().backward()
            optimizer.step()
            seen.append(batch)
            evaluated += len(list(lockstep(lists(), end=end)))
        found.append((len(seen), evaluated))
    return found, [parameter.detach().flatten().tolist() for parameter in model.parameters()]


def in_groups():
    """Ranks 0 and 1 step together, and rank 2 on its own."""
    pair, alone = dist.new_group([0, 1]), dist.new_group([2])
    return list(lockstep(lists(), group=alone if dist.get_rank() == 2 else pair))


def filtered(num_workers):
    """What each end makes of a filter behind the split, and each mode of one before it."""
    found = {}
    for end in ("shortest", "longest"):
        steps = lockstep(behind(num_workers, multiprocessing_context="fork" if num_workers else None), end=end)
        steps.set_epoch(1)
        found[end] = given(steps), steps.padded
    found["all"] = given(behind(num_workers))
    for uneven in ("pad", "drop", "keep"):
        dataset = ShardedIterable(Kept(61), batch_size=3, uneven=uneven)
        found[uneven] = given(DataLoader(dataset, 3, num_workers=num_workers))
    return found


def shards_of_hugging_face(num_workers):
    """Six shards of 3, 4, ..., 8 rows, dealt whole: 15 rows on rank 0 and 18 on rank 1."""
    from datasets import IterableDataset as HuggingFace

    rows = HuggingFace.from_generator(rows_of, gen_kwargs={"shards": list(range(6))})
    loader = DataLoader(ShardedIterable(rows, batch_size=2, by="shards", uneven="keep"), 2, num_workers=num_workers)
    found = []
    for end in ("shortest", "longest"):
        steps = lockstep(loader, end=end)
        steps.set_epoch(0)
        found.append(([batch["id"].tolist() for batch in steps], steps.dropped, steps.padded))
    return found


def rows_of(shards):
    for shard in shards:
        yield from ({"id": 10 * shard + row} for row in range(3 + shard))


def raised(call):
    try:
        call()
    except Exception as error:
        return type(error).__name__, str(error)
    return None


def failing(batches, at):
    yield from batches[:at]
    raise KeyError("no such sample")


class Failing:
    """Fails on rank 1 when it is asked for batch `at`, or for an iterator if that is None."""

    def __init__(self, at):
        self.at = at

    def __iter__(self):
        if dist.get_rank() != 1:
            return iter(lists())
        if self.at is None:
            raise OSError("no such shard")
        return failing(lists(), self.at)


def go_wrong():
    rank, found = dist.get_rank(), {}

    def steps_of(name, loader, **options):
        seen = []
        error = raised(lambda: seen.extend(seen_one for seen_one in lockstep(loader, **options)))
        found[name] = len(seen), error

    def by_hand(name, steps):
        found[name] = raised(lambda: list(steps))

    steps_of("at batch 2", Failing(2))
    steps_of("at once", Failing(0), end="longest")
    steps_of("at iter()", Failing(None))
    steps_of("no batch", [] if rank == 1 else lists(), end="longest")
    steps_of("no batch, shortest", [] if rank == 1 else lists())
    steps_of("other ends", lists(), end="longest" if rank else "shortest")
    steps = lockstep([*lists(), "one more"])
    for number, _ in enumerate(steps):
        if rank == 0 and number == 1:
            break
        if rank > 0 and number == 2:
            break
    by_hand("other steps", steps)
    own = torch.ones(1)
    dist.all_reduce(own)
    return found, own.item()


def stopped_after(stops, end, num_workers):
    """Own batches of epoch 3; for each stop, what a pass gave until then, and what one that goes on there gives."""
    whole = behind(num_workers)
    whole.set_epoch(3)
    found = []
    for stop in stops:
        first = lockstep(behind(num_workers), end=end)
        first.set_epoch(3)
        seen = []
        for batch in first:
            seen.append(batch.tolist())
            if len(seen) == stop:
                state = json.loads(json.dumps(first.state_dict()))
                break
        assert json.loads(json.dumps(first.state_dict())) == state
        again = lockstep(behind(num_workers), end=end)
        again.load_state_dict(state)
        found.append((seen, given(again), again.loader.epoch))
    return given(whole), found


def with_a_ledger(end):
    """N = 5 over two ranks, one by one: rank 0 has a batch more."""
    sampler = DistributedSampler(range(5), uneven="keep", seed=3)
    ledger = Ledger(exact=True)
    steps = lockstep(DataLoader(range(5), 1, sampler=sampler, ledger=ledger), end=end)
    reports = []
    for epoch in range(2):
        steps.set_epoch(epoch)
        for _ in steps:
            steps.state_dict()
            reports.append(str(ledger.verify()))
        reports.append((str(ledger.verify()), steps.dropped, steps.padded))
    return reports


def others_loaders():
    """torchdata's loader, whose state is of what it handed out, and torch's own, told the epoch by its sampler."""
    from torchdata.stateful_dataloader import StatefulDataLoader

    warnings.filterwarnings("ignore", "'set_vital' is deprecated")

    def fresh():
        return lockstep(StatefulDataLoader(range(13), 2, sampler=DistributedSampler(range(13), uneven="keep")))

    first, states = fresh(), []
    first.set_epoch(2)
    batches = given(_saving(first, states))
    left = []
    for state in states:
        again = fresh()
        again.set_epoch(2)
        again.load_state_dict(state)
        left.append(given(again))
    return batches, left


def _saving(steps, states):
    for batch in steps:
        states.append(steps.state_dict())
        yield batch
