import pytest
from pydantic import ValidationError

from attmask.data.config import IMAGENET_MEAN, IMAGENET_STD, DataConfig


def test_statistics_are_those_of_imagenet_in_colour_and_in_grey() -> None:
    assert (DataConfig().mean, DataConfig().std) == (IMAGENET_MEAN, IMAGENET_STD)
    grey = DataConfig(channels=1)
    assert len(grey.mean) == len(grey.std) == 1
    luma = 0.299 * IMAGENET_MEAN[0] + 0.587 * IMAGENET_MEAN[1] + 0.114 * IMAGENET_MEAN[2]
    assert grey.mean[0] == pytest.approx(luma, abs=1e-3)
    # A config that was written out and read back with one channel, too.
    assert DataConfig(**{**DataConfig().model_dump(mode="json"), "channels": 1}) == grey
    assert DataConfig(**grey.model_dump(mode="json")) == grey
    assert DataConfig(channels=1, mean=(0.1,)).mean == (0.1,)


def test_one_value_serves_all_channels_but_a_wrong_number_is_refused() -> None:
    assert DataConfig(mean=(0.5,), std=(0.5,)).mean == (0.5,)
    with pytest.raises(ValidationError, match="mean has 2 values for 3 channels"):
        DataConfig(mean=(0.5, 0.5))
    with pytest.raises(ValidationError, match="must be above 0"):
        DataConfig(std=(0.0,))
    with pytest.raises(ValidationError):
        DataConfig(per_class=0)


@pytest.mark.parametrize("name", ["mean", "std"])
def test_statistics_of_values_up_to_255_are_refused_with_the_divided_ones(name: str) -> None:
    wanted = rf"{name} \[127.5, 1, 255\] is in 0..255.*use data.{name}=\[0.5,0.003922,1\]"
    with pytest.raises(ValidationError, match=wanted):
        DataConfig.model_validate({name: (127.5, 1.0, 255.0)})
    fine = DataConfig.model_validate({name: (1.0, 0.5, 1.0)})
    assert getattr(fine, name) == (1.0, 0.5, 1.0)


@pytest.mark.parametrize("channels", [-1, 0])
def test_less_than_one_channel_is_refused_in_the_config(channels: int) -> None:
    wanted = f"{channels} channels are impossible"
    with pytest.raises(ValidationError, match=wanted) as caught:
        DataConfig(channels=channels)
    assert caught.value.error_count() == 1


@pytest.mark.parametrize("channels", [2, 4, 13])
def test_other_numbers_of_channels_have_one_mean_and_std_for_all(channels: int) -> None:
    config = DataConfig(channels=channels)
    assert (config.mean, config.std) == ((0.5,), (0.25,))
    assert DataConfig(**config.model_dump(mode="json")) == config
    assert len(DataConfig(channels=channels, mean=(0.1,) * channels).mean) == channels


def test_less_images_are_chosen_in_one_way() -> None:
    with pytest.raises(ValidationError, match=r"per_class=5 and data.percent=10\.0 are both set"):
        DataConfig(per_class=5, percent=10.0)
    with pytest.raises(ValidationError):
        DataConfig(percent=0)


@pytest.mark.parametrize("wrong", [{"bits": 7}, {"bits": 17}, {"order": "random"}])
def test_impossible_settings_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        DataConfig.model_validate(wrong)


def test_a_mean_below_zero_and_too_many_channels_are_refused() -> None:
    with pytest.raises(ValidationError, match=r"data\.mean .* is below 0, but pixel values are in"):
        DataConfig(mean=(-0.1,))
    with pytest.raises(ValidationError, match=r"5000 channels are impossible; .* up to 4096"):
        DataConfig(channels=5000)
