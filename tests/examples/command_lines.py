"""What the tests of the examples' command lines share."""

from examples.command import EXIT_BAD_INPUT


def on_cpu(main, *args):
    """Runs a command: its name, then its options."""
    return main([*args[:1], "--device", "cpu", *map(str, args[1:])])


def refused(main, capsys, *args):
    """The line that a command ends with which cannot use what it was given."""
    assert on_cpu(main, *args) == EXIT_BAD_INPUT
    # A progress bar may stand before it, on a line of its own.
    message = capsys.readouterr().err.splitlines()[-1]
    assert message.startswith("error: ")
    return message
