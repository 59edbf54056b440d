# bash completion for rametctl                             -*- shell-script -*-
# SPDX-License-Identifier: Apache-2.0
_rametctl() {
	local words=${COMP_WORDS[*]:1:COMP_CWORD-1} choices
	case " $words " in
	*' key create '*) choices='--tier --name --tenant' ;;
	*' key rotate '*) choices='--grace' ;;
	*' key '*) choices='create list revoke rotate tier' ;;
	*' fleet '*) choices='ca check haproxy init join status' ;;
	*' host drain '*) choices='--deadline' ;;
	*' host '*) choices='drain forget list undrain' ;;
	*' audit '*) choices='--since --follow' ;;
	*' top '*) choices='--once' ;;
	*' doctor '*) choices='--json' ;;
	*' restore '[!\ ]*' '*) choices='--skip-damaged' ;;
	*' backup '* | *' check '* | *' restore '*)
		mapfile -t COMPREPLY < <(compgen -d -- "${COMP_WORDS[COMP_CWORD]}")
		return
		;;
	*) choices='audit backup canary check checks doctor fleet help host inspect key loads ls processes restore top' ;;
	esac
	mapfile -t COMPREPLY < <(compgen -W "$choices" -- "${COMP_WORDS[COMP_CWORD]}")
}
complete -F _rametctl rametctl
