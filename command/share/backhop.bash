# Completion for bash. `backhop ... --help` lists the commands and options.
_backhop() {
    local word=${COMP_WORDS[COMP_CWORD]} typed=() each
    for each in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
        [[ $each == -* ]] && break
        typed+=("$each")
        ((${#typed[@]} == 2)) && break
    done
    local help more=--help
    ((${#typed[@]})) || more+=' --version'
    help=$("${COMP_WORDS[0]}" "${typed[@]}" --help 2>/dev/null) || help=$("${COMP_WORDS[0]}" "${typed[0]}" --help 2>/dev/null)
    if [[ $word == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$(grep -E '^ +-' <<<"$help" | grep -oE -- '--[a-z-]+' | sort -u) $more" -- "$word")
    elif [[ $help == "Usage: "*"COMMAND"* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$(sed -n 's/^  \([a-z][a-z]*\) .*/\1/p' <<<"$help")" -- "$word")
    else
        mapfile -t COMPREPLY < <(compgen -f -- "$word")
    fi
}
complete -F _backhop backhop
