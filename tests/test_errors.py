import pytest

from attmask.errors import UserError


def test_a_user_error_is_a_value_error_whose_text_is_its_message() -> None:
    with pytest.raises(ValueError, match="use 96 or 112") as caught:
        raise UserError("image size 100 is not a multiple of patch size 16; use 96 or 112")
    assert isinstance(caught.value, UserError)
    assert str(caught.value) == "image size 100 is not a multiple of patch size 16; use 96 or 112"
