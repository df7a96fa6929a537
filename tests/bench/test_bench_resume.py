"""The question `resume`: each way to go on really goes on, where it says, in the order it says."""

import pytest
from torch.utils.data import DataLoader

from bench import peers, resume

SAMPLES = 5 * peers.NUM_REPLICAS * resume.BATCH_SIZE


def whole_epoch(sampler):
    sampler.set_epoch(peers.EPOCH)
    ids = list(sampler)
    return [ids[i : i + resume.BATCH_SIZE] for i in range(0, len(ids), resume.BATCH_SIZE)]


@pytest.mark.parametrize("way", [way for way in resume.WAYS if resume._installed(way)], ids=lambda way: way.label)
def test_every_way_goes_on_with_the_batches_that_are_left_of_its_order(way):
    ours = way.label.startswith("fastshard")
    peer = peers.PEERS["fastshard-shuffled" if ours else "torch"]
    done = resume.steps(SAMPLES, way.percent)
    assert done == 5 * way.percent // 100
    checkpoint = way.checkpoint(SAMPLES, done)
    for _ in range(2):  # which a measurement does too
        batches = [batch.tolist() for batch in way.resume(SAMPLES, checkpoint)]
        assert batches == whole_epoch(peer.build(SAMPLES))[done:]
        assert resume.first_batch(way, SAMPLES, checkpoint).tolist() == batches[0]


def test_the_state_given_to_torchdata_is_the_one_that_it_saves_itself():
    loader = resume._torchdata(SAMPLES)
    assert isinstance(loader, DataLoader)
    batches = iter(loader)
    for done in range(1, 4):
        next(batches)
        assert loader.state_dict() == resume.torchdata_state(SAMPLES, done)
