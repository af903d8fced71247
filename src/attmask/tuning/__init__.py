"""What the trainings of a backbone with a head have in common: classes, segments and boxes."""
