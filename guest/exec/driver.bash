# SPDX-License-Identifier: Apache-2.0
# The functions of a bash context. bash reads its commands from a pipe of the agent (bash-feed.c),
# one line for each call. The line sources a file that enters the call's folder and variables, and
# then sources the user's code, which is thus never in a function: its declarations stay.
#
# Frames of proto/agent.h go to descriptor 1000. Descriptor 1004 reports that SIGINT reaches the
# code. All names begin with __ramet_, also those of local variables: a call can set variables of any
# other name, and functions see the local variables of their callers.
BASH_ARGV0=bash
__ramet_flags='' __ramet_interrupted='' __ramet_folder=''
__ramet_names=() __ramet_old=() __ramet_kinds=()

__ramet_begin() {
	__ramet_interrupted='' __ramet_folder=''
	__ramet_names=() __ramet_old=() __ramet_kinds=()
}

# Enters the folder $1, unless it is empty, and sets the variables: name, value, name, value …
__ramet_enter() {
	if [[ -n $1 ]]; then
		__ramet_folder=$PWD
		# Not "-", nor a folder of CDPATH.
		if [[ $1 == /* ]]; then builtin cd -- "$1"; else builtin cd -- "./$1"; fi 2>/dev/null
		if (($? != 0)); then
			__ramet_folder=''
			builtin printf 'ramet: enter the folder %s: it does not exist or cannot be entered\n' "$1" >&2
			return 1
		fi
	fi
	shift
	while (($# >= 2)); do
		if [[ ! $1 =~ ^[A-Za-z_][A-Za-z0-9_]*$ ]]; then
			builtin printf 'ramet: set the variable %s: bash has no variables of this name\n' "$1" >&2
			return 1
		fi
		__ramet_names+=("$1")
		if [[ ! -v $1 ]]; then
			__ramet_kinds+=(unset) __ramet_old+=('')
		elif [[ ${!1@a} == *x* ]]; then
			__ramet_kinds+=(exported) __ramet_old+=("${!1}")
		else
			__ramet_kinds+=(plain) __ramet_old+=("${!1}")
		fi
		if ! builtin export -- "$1=$2" 2>/dev/null; then
			builtin printf 'ramet: set the variable %s: it is read-only\n' "$1" >&2
			return 1
		fi
		shift 2
	done
}

__ramet_leave() {
	local __ramet_i
	for ((__ramet_i = ${#__ramet_names[@]} - 1; __ramet_i >= 0; __ramet_i--)); do
		case ${__ramet_kinds[__ramet_i]} in
		unset) builtin unset -v "${__ramet_names[__ramet_i]}" ;;
		plain)
			builtin export -n -- "${__ramet_names[__ramet_i]}=${__ramet_old[__ramet_i]}"
			;;
		*) builtin export -- "${__ramet_names[__ramet_i]}=${__ramet_old[__ramet_i]}" ;;
		esac
	done
	[[ -z $__ramet_folder ]] || builtin cd -- "$__ramet_folder" || return
}

# The last command before the code: an interrupt reaches the code from now on. Turns options on
# again that would have disturbed the functions here.
__ramet_started() {
	builtin printf '\0\0\0\0' >&1004
	[[ -z $__ramet_flags ]] || builtin set "-$__ramet_flags"
}

# Handles SIGINT: skips all commands up to the end of the code. With extdebug, a DEBUG trap that
# returns 2 makes the function or sourced file return.
__ramet_on_interrupt() {
	__ramet_interrupted=1
	builtin shopt -s extdebug
	builtin trap __ramet_unwind DEBUG
}

# The functions here run to their end: an interrupt may come while one of them ends the call.
__ramet_unwind() {
	[[ ${FUNCNAME[1]} != __ramet_* ]] || return 0
	((${#FUNCNAME[@]} <= 2)) || return 2
	builtin trap - DEBUG
	builtin shopt -u extdebug
	return 0
}

# Reports the end of the call with exit code $1. If user code has made that impossible, for example
# by closing descriptors or with a low limit on them, ends bash, which the agent notices.
__ramet_end() {
	local __ramet_shown=$- __ramet_code=$1 __ramet_hex
	builtin set +euvx
	__ramet_flags=${__ramet_shown//[!euvx]/}
	__ramet_leave
	[[ -z $__ramet_interrupted ]] || __ramet_code=130
	builtin printf -v __ramet_hex %02x "$((__ramet_code & 255))"
	builtin printf "\5\0\0\0\103\0\0\0\x$__ramet_hex\0\0\0\0" >&1000 ||
		builtin exit "$__ramet_code"
}

# Reports that bash waits for code.
__ramet_ready() {
	builtin printf '\0\0\0\0\100\0\0\0' >&1000
}

# Seeds $RANDOM with $1, unless it is empty, and reports that.
__ramet_reseed() {
	[[ -z $1 ]] || RANDOM=$1
	builtin printf '\0\0\0\0\104\0\0\0' >&1000
}

trap __ramet_on_interrupt INT
