#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs the tests. `./dev test [GROUP…]` runs this script; without a group it runs all groups.
# `./dev test FOLDER…`, such as test/unit/base, runs the tests of a folder with the sanitizers only.
# The last line is: N passed, N failed, N skipped. Groups run one after the other: in parallel, the
# tests of one would take the CPU time on which the timeouts of the other depend.
set -euo pipefail

top=$(dirname "$(dirname "$(realpath "$0")")")
# shellcheck source=../rig/common.sh
. "$top/rig/common.sh"
# shellcheck source=../rig/parts.sh
. "$top/rig/parts.sh"

all_groups=(style unit h2o fuzz native system fault)
fuzz_seconds=${RAMET_FUZZ_SECONDS:-5} # for new inputs, after the whole corpus
limit_s=${RAMET_TEST_LIMIT_S:-4800}
results=$top/build/test

# The packages of other projects that the SDK has adapters for, some 150 with what they need: uv
# installs them in 10 s, pip in minutes. They keep their bytecode, as they are slow to import. The
# last list has packages whose needs contradict those of the others.
make_integrations_venv() {
	local lists=$top/test/integrations
	/usr/bin/python3 -m venv "$1" &&
		"$1/bin/python" -m pip install --quiet "$(grep '^uv==' "$lists/requirements.txt")" &&
		export UV_CACHE_DIR=$cache/uv VIRTUAL_ENV=$1 &&
		"$1/bin/uv" pip install --quiet --requirement "$lists/requirements.txt" &&
		"$1/bin/uv" pip install --quiet --no-deps --requirement "$lists/requirements-no-deps.txt"
}
need_integrations_venv() {
	cached "$(integrations_venv_dir)" "Python with the packages of the integrations" make_integrations_venv
}
# with_sdk CMD…: runs the command where the SDK can be imported, for $limit seconds at most if it is set
with_sdk() {
	PYTHONPATH=$top/sdk/python/src ${limit:+timeout --foreground -s INT -k 60 "$limit"} "$@"
}
python() { PYTHONDONTWRITEBYTECODE=1 with_sdk "$(venv_dir)/bin/python" "$@"; }
integrations_python() {
	PYTHONPYCACHEPREFIX=$top/build/pycache with_sdk "$(integrations_venv_dir)/bin/python" "$@"
}
# pytest RESULT ARG…: runs pytest with the function $with, or python. A run that fails to start, that
# finds no tests, or that ends before its last test counts as a failed test. After limit_s of the
# whole run it starts no further test, and a fixture or a thread that hangs is interrupted some
# minutes later: the run must end to report it.
pytest() {
	local result=$1 status=0 left=$((limit_s - SECONDS)) limit
	shift
	left=$((left > 60 ? left : 60)) limit=$((left + 300))
	"${with:-python}" -m pytest -q -rfE --color=no -p no:cacheprovider -o junit_family=xunit1 \
		--durations=20 --session-timeout=$left --junit-xml="$results/$result.xml" "$@" || status=$?
	[[ $status -le 1 && -s $results/$result.xml ]] ||
		printf '1 pytest of %s\n' "$result" >>"$results/${result%%-*}.items"
	# It also ends with 1 when the time is over.
	[[ $status -ne 1 ]] || grep -qE '<(failure|error)' "$results/$result.xml" ||
		printf '1 end of %s before its last test\n' "$result" >>"$results/${result%%-*}.items"
}

run_ctest() { # PRESET LABEL RESULT [ARG…]
	ctest --test-dir "$top/build/$1" -L "^$2\$" --output-on-failure --no-tests=ignore \
		--output-junit "$results/$3.xml" "${@:4}" || true
	[[ -s $results/$3.xml ]] || printf '1 ctest of %s\n' "$3" >>"$results/${3%%-*}.items"
}

# item GROUP NAME CMD…: runs a check that is not a test program, and records its result
item() {
	local group=$1 name=$2 status=0
	shift 2
	"$@" || status=$?
	printf '%s %s\n' "$status" "$name" >>"$results/$group.items"
	[[ $status -eq 0 ]] || printf '%s: %s FAILED\n' "$group" "$name"
}

tracked() { git -C "$top" ls-files -- "$@"; }

check_format() { tracked '*.c' '*.h' | xargs clang-format --dry-run -Werror; }
check_tidy() {
	cmake_tree asan &&
		tracked '*.c' ':!test' ':!kernel-config' | xargs -P "$(nproc)" -n 1 "$top/test/tidy.sh" "$top/build/asan"
}
check_shell() {
	shellcheck --check-sourced "$top/dev" &&
		git -C "$top" grep -lE '^#!.*\b(ba)?sh\b' -- . ':!dev' | xargs shellcheck
}
# The SDK and its users are checked with the packages that the adapters are for. mypy takes minutes
# to read those, so the cache keeps what it found.
check_types() {
	need_integrations_venv &&
		integrations_python -m mypy --config-file test/integrations/mypy.ini --cache-dir "$cache/mypy" \
			sdk/python/src examples/*.py test/integrations &&
		integrations_python -m basedpyright --pythonpath "$(integrations_venv_dir)/bin/python" \
			--project test/integrations/pyrightconfig.json &&
		MYPYPATH=sdk/python/src python -m mypy --strict --no-incremental bench/*.py &&
		python -m mypy --config-file test/mypy.ini --no-incremental test/system test/fault &&
		python -m mypy --config-file test/mypy.ini --no-incremental test/api &&
		python -m mypy --config-file test/mypy.ini --no-incremental test/guest_api
}
# Every relative link in a document has a target.
check_links() {
	python -m mypy --strict --no-incremental test/links.py && python test/links.py "$top"
}
# The synchronous SDK is generated from the asynchronous one.
check_sdk() {
	python -m mypy --strict --no-incremental sdk/python/make_sync.py && python sdk/python/make_sync.py --check
}
# A room includes only headers of rooms that it declares.
check_rooms() {
	python -m mypy --strict --no-incremental test/rooms.py && python test/rooms.py "$top"
}
check_words() {
	python -m mypy --strict --no-incremental test/words.py && python test/words.py "$top"
}
# No package archive is named: packages come from those that the machine is configured for.
check_hosts() {
	! git -C "$top" grep -nIE '(deb|security|snapshot)[.]debian[.]org|(archive|security)[.]ubuntu[.]com|(files[.])?pypi(thonhosted)?[.]org|registry[.]npmjs|crates[.]io|proxy[.]golang'
}

group_style() {
	need clang-format clang-tidy clang shellcheck git
	cd "$top"
	item style clang-format check_format
	item style shellcheck check_shell
	item style mypy check_types
	item style "synchronous SDK" check_sdk
	item style "links between documents" check_links
	item style "includes of the rooms" check_rooms
	item style "retired words" check_words
	item style "no registry is named" check_hosts
	item style "hook for commit messages" test/hooks/check.sh
	item style clang-tidy check_tidy
}

group_unit() {
	cmake_tree release && cmake_tree asan || return
	run_ctest release unit unit-gcc -j "$(nproc)"
	run_ctest asan unit unit-asan -j "$(nproc)"
	# Tests of code that shares memory between threads; the rest is single-threaded.
	cmake_tree tsan threaded_tests && run_ctest tsan threaded unit-tsan -j "$(nproc)"
	[[ ! -d $top/sdk/python/tests ]] || pytest unit-sdk "$top/sdk/python/tests"
}

group_h2o() {
	build_h2spec
	cmake_tree release || return
	run_ctest release h2o h2o
}

fuzz_one() { # BINARY
	local name seeds found packed
	name=$(basename "$1")
	seeds=$top/test/fuzz/corpus/${name#fuzz_}
	found=$top/build/fuzz-found/$name
	packed=$top/build/fuzz-corpus/$name
	mkdir -p "$found"
	[[ -d $seeds ]] || { echo "$seeds is missing: a target needs a few named seeds" && return 1; }
	"$top/test/fuzz/corpus.sh" unpack "${name#fuzz_}" "$packed" || return
	# libFuzzer's own status for a finding is 77, which elsewhere means skipped.
	"$1" -max_total_time="$fuzz_seconds" -timeout=60 -rss_limit_mb=2048 -verbosity=0 \
		-error_exitcode=1 -artifact_prefix="$found/../$name-" "$found" "$seeds" "$packed"
}

# Each corpus belongs to a target: inputs of a renamed target would never be read.
check_corpus() {
	local name unread=0
	for name in "$top"/test/fuzz/corpus/*; do
		name=$(basename "$name" .tar.xz)
		[[ -n $(find "$top/build/fuzz" -type f -name "fuzz_$name" -executable) ]] && continue
		echo "test/fuzz/corpus/$name: there is no fuzz target of this name"
		unread=1
	done
	return $unread
}

group_fuzz() {
	local binary name pids=()
	cmake_tree fuzz || return
	item fuzz "names of the corpora" check_corpus
	rm -f "$results"/fuzz_*.log
	while read -r binary; do
		name=$(basename "$binary")
		item fuzz "$name" fuzz_one "$binary" >"$results/$name.log" 2>&1 &
		pids+=($!)
		if [[ ${#pids[@]} -ge $(nproc) ]]; then
			wait "${pids[0]}"
			pids=("${pids[@]:1}")
		fi
	done < <(find "$top/build/fuzz" -type f -name 'fuzz_*' -executable | sort)
	wait
	# What the others print would hide it.
	{ grep -lx 'fuzz: .* FAILED' "$results"/fuzz_*.log || true; } | xargs -r cat
}

# Jails need cgroup v2, which the rig's host has, but this machine may lack.
jail_where_vms_run() {
	"$top/dev" host sh -c 'mkdir -p /tmp/native && tar -x -C /tmp/native' \
		< <(tar -C "$top/build/release/test/warden" -c native_jail warden_probe) &&
		"$top/dev" host /tmp/native/native_jail
}

group_native() {
	cmake_tree release && cmake_tree asan || return
	item native "jails where the VMs run" jail_where_vms_run
	if [[ -w /dev/kvm ]]; then
		run_ctest release native native-gcc
		run_ctest asan native native-asan
	else
		echo "skipped: /dev/kvm is missing or not permitted here"
		printf '77 native\n' >>"$results/native.items"
	fi
}

# The sizes that the tests use, so that nothing else is prepared in the background.
export RAMET_TEST_SETTINGS=--sizes=1024x2x16,1024x1x16

# When another program takes the CPU from one CPU of the rig, the others soon wait for a lock that it
# holds. Has no effect unless root runs the tests.
export RAMET_RIG_NICE=-10

# with_service GROUP: starts the service, or records a failure
with_service() {
	RAMET_HOST=$("$top/dev" up "$RAMET_TEST_SETTINGS") && export RAMET_HOST && return
	printf '1 the service starts\n' >>"$results/$1.items"
	return 1
}

# Runs two test files at a time on one service; then the tests that must have the service alone.
group_system() {
	cmake_tree release && with_service system || return
	pytest system-parallel -m 'not alone' -n 2 --dist loadfile --no-loadscope-reorder "$top/test/system"
	pytest system-alone -m alone "$top/test/system"
	need zsh fish # for the completions of the command line
	need_integrations_venv && with=integrations_python pytest system-integrations "$top/test/integrations"
}

group_fault() {
	with_service fault || return
	pytest fault "$top/test/fault"
}

# sum GROUP: prints how many tests passed, failed and were skipped, from the group's result files,
# then the names of those that failed
sum() {
	python3 - "$results" "$1" <<'EOF'
import glob, sys, xml.etree.ElementTree as xml
where, group = sys.argv[1:]
passed = failed = skipped = 0
names = []
for name in glob.glob(f"{where}/{group}.xml") + glob.glob(f"{where}/{group}-*.xml"):
    root = xml.parse(name).getroot()
    for suite in [root] if root.tag == "testsuite" else root.iter("testsuite"):
        bad = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
        out = int(suite.get("skipped", 0)) + int(suite.get("disabled", 0))
        failed, skipped = failed + bad, skipped + out
        passed += int(suite.get("tests", 0)) - bad - out
        names += [test.get("name") for test in suite.iter("testcase")
                  if test.find("failure") is not None or test.find("error") is not None]
for name in glob.glob(f"{where}/{group}.items"):
    for status, item in (line.rstrip().split(" ", 1) for line in open(name)):
        passed, skipped = passed + (status == "0"), skipped + (status == "77")
        if status not in ("0", "77"):
            failed += 1
            names.append(item)
print(passed, failed, skipped)
print(*names, sep="\n")
EOF
}

# run_group GROUP: runs a group, sets p, f and s to its totals, and adds to bad what failed; shows
# its output if it failed
run_group() {
	local group=$1 status=0 t0=$SECONDS log=$log_dir/test-$1.log text names=()
	say "$group …"
	("group_$group") </dev/null >"$log" 2>&1 || status=$?
	{ read -r p f s && mapfile -t names; } < <(sum "$group" || echo 0 1 0)
	# A group that ended with an error, or that found nothing to run, has failed.
	[[ $f -gt 0 || ($status -eq 0 && $((p + s)) -gt 0) ]] || f=1
	text="$group: $p passed, $f failed, $s skipped ($((SECONDS - t0)) s)"
	if [[ $f -eq 0 ]]; then
		say "$text"
	else
		cat "$log"
		say "$text; its output is above and in $log"
		[[ -n ${names[*]} ]] || names=("the group ended before its tests")
		bad+=("${names[@]/#/$group: }")
	fi
}

# need_for_tests: installs packages and builds libraries that the tests need
need_for_tests() {
	need_for_build clang libclang-rt-dev clang-tidy clang-format llvm shellcheck git ccache \
		nftables iproute2 systemd
	need_venv
	together build_h2o -- build_h2o_unpatched
}

# build_ahead GROUP…: builds the images of the groups that need them, with the CPU time that the
# groups before them leave over. Who needs an image by then waits for it.
build_ahead() {
	[[ " $* " == *" "@(native|system|fault)" "* ]] || return 0
	set -m
	nice -n 19 "$top/dev" build images </dev/null >"$log_dir/build-ahead.log" 2>&1 &
	set +m
	groups+=($!)
}

# group_of FOLDER: prints the group that runs the tests of the folder, if it is not unit
group_of() {
	case $1 in
	test/native | test/warden) echo native ;;
	test/h2o) echo h2o ;;
	test/fuzz*) echo fuzz ;;
	test/system | test/integrations*) echo system ;;
	test/fault) echo fault ;;
	test/hooks) echo style ;;
	esac
}

# run_folder FOLDER: builds and runs the tests of one folder, with the sanitizers
run_folder() {
	local folder=${1%/} targets=("${1%/}/all")
	# Its tests check the other programs, so all targets are built.
	[[ $folder != test/unit/programs ]] || targets=()
	step "build of $folder" cmake_tree asan "${targets[@]}"
	ctest --test-dir "$top/build/asan/$folder" -L '^unit$' --output-on-failure --no-tests=error -j "$(nproc)"
}

run_folders() { # FOLDER…
	local folder group failed=0
	for folder in "$@"; do
		group=$(group_of "${folder%/}")
		[[ -z $group ]] || die "the tests in '$folder' belong to the group $group: run ./dev test $group"
		[[ $folder == test/* && -e $top/$folder/CMakeLists.txt ]] ||
			die "'$folder' is not a folder of tests with a CMakeLists.txt, such as test/unit/base"
	done
	mkdir -p "$log_dir"
	need_for_tests
	for folder in "$@"; do run_folder "$folder" || failed=1; done
	return $failed
}

main() {
	local group was_up=no passed=0 failed=0 skipped=0 p f s bad=()
	if [[ ${1:-} == */* ]]; then
		run_folders "$@"
		return
	fi
	[[ $# -gt 0 ]] || set -- "${all_groups[@]}"
	for group in "$@"; do
		[[ " ${all_groups[*]} " == *" $group "* ]] ||
			die "unknown group '$group'; there are: ${all_groups[*]}, and folders such as test/unit/base"
	done
	mkdir -p "$results" "$log_dir"
	for group in "$@"; do
		rm -f "$results/$group".xml "$results/$group"-*.xml "$results/$group.items"
	done
	need_for_tests
	build_ahead "$@"
	"$top/dev" status >/dev/null 2>&1 && was_up=yes
	for group in "$@"; do
		run_group "$group"
		passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
	done
	# Groups that use the service leave it running for the next group.
	[[ $was_up == yes || " $* " != *" "@(native|system|fault)" "* ]] || "$top/dev" down </dev/null
	[[ $failed -eq 0 ]] || printf 'failed: %s\n' "${bad[@]}"
	printf '%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
	[[ $failed -eq 0 ]]
}

main "$@"
