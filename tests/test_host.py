"""Numbers of the host on a device."""

import numpy as np
import torch

from attmask.host import to_device, to_host

CPU = torch.device("cpu")


def test_numbers_keep_their_type_shape_and_values() -> None:
    for numbers in (np.arange(6).reshape(2, 3), np.array([True, False]), np.array([0.5, 1.0])):
        tensor = to_device(numbers, CPU)
        assert np.array_equal(tensor.numpy(), numbers)
        assert tensor.numpy().dtype == numbers.dtype


def test_a_transposed_array_is_copied_in_its_own_order() -> None:
    numbers = np.arange(6).reshape(2, 3).T
    assert to_device(numbers, CPU).tolist() == numbers.tolist()


def test_no_numbers_become_an_empty_tensor() -> None:
    assert to_device(np.zeros((0, 4)), CPU).shape == (0, 4)


def test_a_number_on_its_way_to_the_host_is_that_of_the_moment_it_was_sent() -> None:
    tensor = torch.tensor([1.0, 2.0], requires_grad=True)
    arriving = to_host(tensor)
    with torch.no_grad():
        tensor.zero_()
    assert arriving().tolist() == [1.0, 2.0]
    assert not arriving().requires_grad
