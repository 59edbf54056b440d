#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Tests commit-msg: messages that it must accept, and messages that it must refuse for a reason.
set -eu

here=$(dirname "$0")
file=$(mktemp)
trap 'rm -f "$file"' EXIT
failed=0

accepts() { # MESSAGE
	printf '%b' "$1" >"$file"
	reason=$("$here/commit-msg" "$file" 2>&1) && return
	printf 'refused: %s\n  %s\n' "$1" "$reason"
	failed=1
}
refuses() { # MESSAGE PART-OF-THE-REASON
	printf '%b' "$1" >"$file"
	if reason=$("$here/commit-msg" "$file" 2>&1); then
		printf 'accepted: %s\n' "$1"
		failed=1
		return
	fi
	case $reason in
	*"$2"*) ;;
	*)
		printf 'refused for another reason than "%s": %s\n  %s\n' "$2" "$1" "$reason"
		failed=1
		;;
	esac
}

ten=1234567890
seventy_two="base: add $ten$ten$ten$ten$ten$ten""12"
accepts "$seventy_two\n"
refuses "${seventy_two}3\n" "has 73 characters"
accepts "base: add ä${ten}$ten$ten$ten$ten$ten""1\n" # 72 characters, 73 bytes
accepts 'vmm, guest: say why the clock is set twice\n\nA body.\n'
accepts 'h2o: pass on what c-ares says\n'
accepts 'third_party/h2o: refuse an empty path\n'
accepts 'store: need one statement less\n'
accepts 'store: focus on one statement\n'
accepts 'store: embed the schema\n\n# Please enter the commit message\n# On branch main\n'
accepts 'fixup! store: query the size once\n'
accepts 'Revert "store: query the size once"\n'
accepts "io: name the paper\n\nhttps://example.org/$ten$ten$ten$ten$ten$ten$ten\n"
accepts "io: quote a log\n\n    $ten $ten $ten $ten $ten $ten $ten\n"
accepts "io: cut\n\nBody.\n# ------------------------ >8 ------------------------\n+ $ten $ten $ten $ten $ten $ten $ten\n"

refuses 'query the size once\n' "begin with its room"
refuses 'Store: query the size once\n' "begin with its room"
refuses 'store:query the size once\n' "begin with its room"
refuses 'store: query the size once.\n' "full stop"
refuses 'store: Query the size once\n' "lower case"
refuses 'store: queries the size once\n' "imperative"
refuses 'store: queried the size once\n' "imperative"
refuses 'store: querying the size once\n' "imperative"
refuses 'store: the size is queried once\n' "imperative"
refuses 'store: query the size once\nat each start\n' "second line"
refuses "store: query it once\n\n$ten $ten $ten $ten $ten $ten $ten\n" "line 3 has 76 characters"

exit $failed
