"""Completion in shells of what follows ``python -m app``.

Shells complete by the first word of a command, and Typer's scripts by that word alone. These scripts complete
``python``: what follows ``-m app`` by asking this program, and everything else as before.
"""

from typing import Annotated, Literal

import typer

VARIABLE = "_LACHESIS_APP_COMPLETE"
"""The variable by which a script asks for completions. `COMP_WORDS` and `COMP_CWORD` have the words, as in bash."""

_SCRIPTS = {
    "bash": """\
_lachesis_app() {
    local IFS=$'\\n'
    [[ "${COMP_WORDS[1]} ${COMP_WORDS[2]}" == "-m app" ]] && COMPREPLY=($(COMP_WORDS="${COMP_WORDS[*]:2}" \\
        COMP_CWORD=$((COMP_CWORD - 2)) VARIABLE=complete_bash "$1" -m app))
}
complete -o bashdefault -o default -F _lachesis_app python python3
""",
    "zsh": """\
_lachesis_app() {
    [[ "$words[2] $words[3]" == "-m app" ]] || { _python "$@"; return }
    compadd -- ${(f)"$(COMP_WORDS="${(F)words[3,-1]}" COMP_CWORD=$((CURRENT - 3)) \\
        VARIABLE=complete_bash $words[1] -m app)"} || _files
}
compdef _lachesis_app python python3
""",
    "fish": """\
function _lachesis_app
    set -l words (commandline -opc)
    COMP_WORDS=(string join -- \\n app $words[4..] (commandline -ct) | string collect) \\
        COMP_CWORD=(math (count $words) - 2) VARIABLE=complete_bash $words[1] -m app
end
complete -c python -c python3 -n 'string match -q -- "-m app" (string join -- " " (commandline -opc)[2..3])' \\
    -a '(_lachesis_app)'
""",
}


def completion(
    shell: Annotated[Literal["bash", "zsh", "fish"], typer.Argument(help="The shell to print it for.")],
) -> None:
    """Print the completion for a shell.

    To use it: source <(python -m app completion bash).
    """
    typer.echo(_SCRIPTS[shell].replace("VARIABLE", VARIABLE), nl=False)
