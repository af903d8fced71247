"""The rate of a core is measured on real views."""

from attmask.data.views import ViewsConfig
from attmask.planning.rate import images_per_core_second


def test_more_views_of_an_image_take_longer() -> None:
    few = images_per_core_second(ViewsConfig(local_crops=0, global_size=32), seconds=0.2)
    many = images_per_core_second(ViewsConfig(local_crops=10), seconds=0.2)
    assert 0 < many < few
