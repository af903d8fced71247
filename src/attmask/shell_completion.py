"""Completion scripts of bash, zsh and fish, for a command line that is given as data.

The scripts are static: a press of the tab key starts no Python.
"""

import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Option:
    """An option of a command."""

    name: str
    help: str
    takes_value: bool
    values: Sequence[str] = ()
    """What the value may be; empty if it is a file or anything else."""


@dataclass(frozen=True)
class Command:
    """A command with its options."""

    name: str
    help: str
    options: Sequence[Option]
    words: Sequence[str] = ()
    """Names that may stand where files may stand too."""


def bash(commands: Sequence[Command]) -> str:
    """A script for bash."""
    return f"""# bash completion of attmask
_attmask() {{
    local current="${{COMP_WORDS[COMP_CWORD]}}" previous="${{COMP_WORDS[COMP_CWORD-1]}}"
    local command="" known="" names="" word
    if [ "$current" = "=" ]; then current=""  # bash splits --recipe=tiny into three words
    elif [ "$previous" = "=" ]; then previous="${{COMP_WORDS[COMP_CWORD-2]}}"; fi
    for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
        case "$word" in {_names(commands)}) command="$word"; break ;; esac
    done
    case "$command $previous" in
{_lines(f"{_valued(c, o)}) known={_words(o.values)} ;;" for c, o in _choices(commands))}
        {_free(commands)}) return ;;
    esac
    if [ -n "$known" ]; then mapfile -t COMPREPLY < <(compgen -W "$known" -- "$current"); return; fi
    case "$command" in
        "") known={_words([*_first(commands), "--help", "--version"])}; names="$known" ;;
{_lines(f"{c.name}) known={_options(c)}; names={_words(c.words)} ;;" for c in commands)}
    esac
    case "$current" in
        -*) mapfile -t COMPREPLY < <(compgen -W "$known" -- "$current") ;;
        *) mapfile -t COMPREPLY < <(compgen -W "$names" -- "$current")
            if [ -n "$command" ] && [ -n "$names" ]; then
                compopt -o filenames 2>/dev/null
                mapfile -t -O "${{#COMPREPLY[@]}}" COMPREPLY < <(compgen -f -- "$current")
            fi ;;
    esac
}}
complete -o default -F _attmask attmask
"""


def zsh(commands: Sequence[Command]) -> str:
    """A script for zsh."""
    values = (
        f"({_valued(c, o)}) compadd -- {_bare(o.values)}; return ;;" for c, o in _choices(commands)
    )
    options = (
        f"({c.name}) options=({_described((o.name, o.help) for o in c.options)})\n"
        f"            names=({_bare(c.words)}) ;;"
        for c in commands
    )
    return f"""#compdef attmask
_attmask() {{
    local command="" previous="${{words[CURRENT-1]}}" word
    local -a commands options names
    for word in "${{(@)words[2,CURRENT-1]}}"; do
        case "$word" in ({_names(commands)}) command="$word"; break ;; esac
    done
    case "$command $previous" in
{_lines(values)}
        ({_free(commands)}) _files; return ;;
    esac
    case "$command" in
        ("") commands=({_described((c.name, c.help) for c in commands)})
            options=('--help:show help' '--version:show the version')
            _describe command commands; _describe -o option options; return ;;
{_lines(options)}
    esac
    if [[ "$PREFIX" == -* ]]; then _describe -o option options; return; fi
    (( $#names )) && compadd -- $names
    _files
}}
if [ "$funcstack[1]" = "_attmask" ]; then _attmask "$@"; else compdef _attmask attmask; fi
"""


def fish(commands: Sequence[Command]) -> str:
    """A script for fish."""
    lines = ["# fish completion of attmask"]
    first = "-n __fish_use_subcommand"
    for name, about in (("help", "show help"), ("version", "show the version")):
        lines.append(f"complete -c attmask {first} -l {name} -d '{about}'")
    for command in commands:
        lines.append(
            f"complete -c attmask {first} -f -a {command.name} -d {_fish_quoted(command.help)}"
        )
        seen = f"-n '__fish_seen_subcommand_from {command.name}'"
        if command.words:
            lines.append(f"complete -c attmask {seen} -a {_words(command.words)}")
        for option in command.options:
            value = f" -x -a {_words(option.values)}" if option.values else " -r"
            lines.append(
                f"complete -c attmask {seen} -l {option.name.removeprefix('--')}"
                f"{value if option.takes_value else ''} -d {_fish_quoted(option.help)}"
            )
    return "\n".join(lines) + "\n"


SHELLS: dict[str, Callable[[Sequence[Command]], str]] = {"bash": bash, "zsh": zsh, "fish": fish}


def _first(commands: Sequence[Command]) -> list[str]:
    return [command.name for command in commands]


def _names(commands: Sequence[Command]) -> str:
    return "|".join(_first(commands))


def _valued(command: Command, option: Option) -> str:
    return f'"{command.name} {option.name}"'


def _choices(commands: Sequence[Command]) -> Iterator[tuple[Command, Option]]:
    """Options whose values are known."""
    return ((c, o) for c in commands for o in c.options if o.values)


def _free(commands: Sequence[Command]) -> str:
    """Options whose value is a file or anything else."""
    return "|".join(
        _valued(c, o) for c in commands for o in c.options if o.takes_value and not o.values
    )


def _bare(words: Sequence[str]) -> str:
    return " ".join(shlex.quote(word) for word in words)


def _words(words: Sequence[str]) -> str:
    return shlex.quote(" ".join(words)) if words else '""'


def _options(command: Command) -> str:
    return _words([option.name for option in command.options])


def _described(pairs: Iterator[tuple[str, str]] | Sequence[tuple[str, str]]) -> str:
    """Names with what they mean, as zsh's `_describe` takes them."""
    return " ".join(shlex.quote(f"{name}:{_short(about)}") for name, about in pairs)


def _fish_quoted(text: str) -> str:
    """fish has other rules than sh: only the backslash and the quote are escaped."""
    escaped = _short(text).replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _short(text: str) -> str:
    """The first part of a help text, on one line."""
    return re.split(r" \(default|[;:] ", " ".join(text.split()))[0]


def _lines(lines: Iterator[str]) -> str:
    return "\n".join(f"        {line}" for line in lines)
