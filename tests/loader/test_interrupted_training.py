"""An interrupted run is the run: the same global batches at any world size, and on one process the same weights."""

import io
import json
import random
import sys
from pathlib import Path

import pytest
import torch

from fastshard import DataLoader, DistributedBatchSampler, DistributedSampler, Ledger

sys.path.insert(0, str(Path(__file__).parents[1] / "multiprocess"))
from small_training import IndexedDigits, flat, make_model, make_optimizer, step

N, GLOBAL_BATCH, EPOCHS = 211, 24, 3


def test_an_interrupted_run_at_one_global_batch_has_the_global_batches_of_one_that_was_not():
    def steps_of(state, num_replicas, steps):
        """What all ranks get in each of so many steps, in the order of the positions; and the state after them."""
        samplers = [
            DistributedBatchSampler(range(N), GLOBAL_BATCH // num_replicas, num_replicas, rank, seed=2)
            for rank in range(num_replicas)
        ]
        loaders = [DataLoader(range(N), batch_sampler=sampler) for sampler in samplers]
        for loader in loaders:
            if state is not None:
                loader.load_state_dict(json.loads(json.dumps(state)))
        made = []
        while len(made) < steps:
            batches = zip(*(iter(loader) for loader in loaders), strict=True)
            for ranks in batches:
                drawn = [int(id_) for slot in zip(*ranks, strict=True) for id_ in slot]
                made.append(drawn)
                if len(made) == steps:
                    break
            else:
                for loader in loaders:
                    loader.set_epoch(loader.epoch + 1)
        return made, loaders[0].state_dict()

    whole, _ = steps_of(None, 1, 9 * EPOCHS)
    rng = random.Random(1)
    for _ in range(5):
        made, state = [], None
        while len(made) < len(whole):
            steps = min(rng.randint(1, 6), len(whole) - len(made))
            more, state = steps_of(state, rng.choice([1, 2, 3, 4, 6, 8]), steps)
            made += more
        real = [batch[: len(right)] for batch, right in zip(made, whole, strict=True)]  # ranks pad the last step
        assert real == whole


def train(stops, num_workers):
    """Trains on one process, and at each of these steps leaves all that it has for what was saved; returns weights."""

    def build():
        dataset = IndexedDigits(N)
        sampler = DistributedSampler(dataset, 1, 0, seed=4)
        loader = DataLoader(dataset, GLOBAL_BATCH, sampler=sampler, num_workers=num_workers, ledger=Ledger(exact=True))
        model = make_model(0)
        return loader, model, make_optimizer(model)

    loader, model, optimizer = build()
    steps, done = 0, False
    while not done:
        for epoch in range(loader.epoch, EPOCHS):
            loader.set_epoch(epoch)
            for _, images, labels in loader:
                step(model, optimizer, images, labels)
                steps += 1
                if steps in stops:
                    break
            else:
                assert str(loader.ledger.verify()) == f"every one of the {N} samples exactly once, 0 padded draws"
                continue
            file = io.BytesIO()
            torch.save([loader.state_dict(), model.state_dict(), optimizer.state_dict()], file)
            loader, model, optimizer = build()
            file.seek(0)
            for part, state in zip((loader, model, optimizer), torch.load(file), strict=True):
                part.load_state_dict(state)
            break
        else:
            done = True
    return flat(model)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_on_one_process_an_interrupted_training_ends_with_the_same_bits(num_workers):
    torch.manual_seed(0)
    whole = train((), 0)
    assert torch.equal(train((1, 4, 9, 10, 18, 19), num_workers), whole)
    assert not torch.equal(train((), 0), make_model(0)[0].weight.new_zeros(len(whole)))
