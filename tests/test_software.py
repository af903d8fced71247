from attmask.software import software


def test_software_names_what_a_number_may_depend_on() -> None:
    assert {"python", "torch", "timm", "attmask"} <= software().keys()
