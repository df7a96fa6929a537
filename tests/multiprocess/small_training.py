"""A training small enough to be exact about: real digits, a network of two layers, plain functions."""

import torch
from torch import nn
from torch.utils.data import Dataset


class IndexedDigits(Dataset):
    """The first `length` of scikit-learn's digits; a sample is (index, image of 64 pixels, label)."""

    def __init__(self, length, dtype=torch.float32):
        from sklearn.datasets import load_digits  # here, because collecting the tests should not wait for SciPy

        images, labels = load_digits(return_X_y=True)
        self.images = torch.as_tensor(images[:length], dtype=dtype) / 16
        self.labels = torch.as_tensor(labels[:length])

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return index, self.images[index], self.labels[index]


def make_model(seed, dtype=torch.float32):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(64, 32, dtype=dtype), nn.Tanh(), nn.Linear(32, 10, dtype=dtype))


def make_optimizer(model):
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def step(model, optimizer, images, labels):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
    return loss.item()


def flat(model):
    """A copy of all parameters in one vector."""
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
