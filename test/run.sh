#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs the tests; `./dev test` runs this script. usage() below lists the commands. The last line of a
# run is: N passed, N failed, N skipped. CONTRIBUTING.md says which tests belong to which group.
set -euo pipefail

top=$(dirname "$(dirname "$(realpath "$0")")")
# shellcheck source=../rig/common.sh
. "$top/rig/common.sh"
# shellcheck source=../rig/parts.sh
. "$top/rig/parts.sh"
# shellcheck source=../packaging/package.sh
. "$top/packaging/package.sh"

default_groups=(style unit fuzz native system fault)
all_groups=(style unit h2o fuzz native packages system integrations fault)
all=no            # whether the groups run all of their tests
fuzz_seconds=${RAMET_FUZZ_SECONDS:-20} # of each target, for new inputs
limit_s=${RAMET_TEST_LIMIT_S:-4800}
results=$top/build/results
run_began=0 # the value of SECONDS at which the current run of the groups began

usage() {
	cat <<'EOF'
usage: ./dev test [--repeat N] [GROUP…]
                     run what a change can break for users, or only these groups:
                     style unit fuzz native system fault
       ./dev test all [--repeat N] [GROUP…]
                     run all tests of all groups (also h2o, packages and integrations), or
                     of these
       ./dev test changed [REF]
                     run the style checks and the unit and service tests of the rooms that
                     changed since the commit REF, and of the rooms above them. Without REF:
                     what is not committed, or else the last commit
       ./dev test FOLDER…
                     run the tests of folders such as test/unit/base, with the sanitizers
       ./dev test --slowest
                     print the slowest tests of the last runs, and the time of each file
--repeat N runs the groups N times and lists the tests that failed in some of the runs.
EOF
}

# Debian's tool of Prometheus, without the package, whose service would start.
promtool_dir() { cache_path promtool "$(dpkg --print-architecture)"; }
make_promtool() { # OUTDIR
	mkdir -p "$1" && cd "$1" && { download_prometheus || { as_root apt-get update && download_prometheus; }; } &&
		dpkg-deb --fsys-tarfile prometheus_*.deb | tar -x --strip-components=3 ./usr/bin/promtool &&
		rm prometheus_*.deb
}
download_prometheus() { apt-get -qq -o Acquire::Retries=3 download prometheus; }
need_promtool() { cached "$(promtool_dir)" "promtool" make_promtool; }
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
	local result=$1 status=0 left=$((limit_s - SECONDS + run_began)) limit
	shift
	left=$((left > 60 ? left : 60)) limit=$((left + 300))
	"${with:-python}" -m pytest -q -rfE --color=no -p no:cacheprovider -o junit_family=xunit1 \
		--durations=20 --session-timeout=$left --junit-xml="$results/$result.xml" "$@" || status=$?
	[[ $status -le 1 && -s $results/$result.xml ]] ||
		record "${result%%-*}" 1 0 0 "pytest of $result"
	# It also ends with 1 when the time is over.
	[[ $status -ne 1 ]] || grep -qE '<(failure|error)' "$results/$result.xml" ||
		record "${result%%-*}" 1 0 0 "end of $result before its last test"
}

# Most of the time tests wait, for timers, disks and each other.
test_jobs=$((6 * $(nproc)))

# private_tmp CMD…: runs the command with an empty /tmp in memory, if that is possible. The unit tests
# sync thousands of small files, for which a busy disk takes minutes.
private_tmp() {
	if [[ $top/ != /tmp/* && $cache/ != /tmp/* ]] && unshare --mount true 2>/dev/null; then
		unshare --mount sh -c 'mount -t tmpfs ramet-tests /tmp && exec "$@"' sh "$@"
	else
		"$@"
	fi
}

run_ctest() { # PRESET LABEL RESULT [ARG…]
	local in=()
	[[ $2 != *unit* ]] || in=(private_tmp)
	"${in[@]}" ctest --test-dir "$top/build/$1" -L "^$2\$" --output-on-failure --no-tests=error \
		--output-junit "$results/$3.xml" "${@:4}" || true
	grep -qs '<testcase' "$results/$3.xml" || record "${3%%-*}" 1 0 0 "ctest of $3"
}

# record GROUP STATUS SECONDS CPU_SECONDS NAME: records the result of a check; report.py reads it
record() { printf '%s %s %s %s\n' "${@:2}" >>"$results/$1.items"; }

# timed FILE CMD…: runs the command and writes its seconds and CPU seconds to the file
timed() {
	local file=$1 status=0 TIMEFORMAT='%R %U %S'
	shift
	{ time "$@" 2>&3 3>&-; } 3>&2 2>"$file.raw" || status=$?
	awk 'END { print $1, $2 + $3 }' "$file.raw" >"$file"
	rm "$file.raw"
	return $status
}

# item GROUP NAME CMD…: runs a check that is not a test program, and records its result. Its output
# is shown if it fails.
item() {
	local group=$1 name=$2 status=0 took log
	shift 2
	log=$results/$group-${name//[^a-zA-Z0-9]/-}
	timed "$log.time" "$@" >"$log.log" 2>&1 || status=$?
	read -r -a took <"$log.time"
	record "$group" "$status" "${took[@]}" "$name"
	[[ $status -eq 0 ]] || { cat "$log.log" && printf '%s: %s FAILED\n' "$group" "$name"; }
}

# beside_item GROUP NAME CMD…: the same in the background, one for each CPU at a time
beside_item() {
	while (($(jobs -rp | wc -l) >= $(nproc))); do wait -n || true; done
	item "$@" &
}

tracked() { git -C "$top" ls-files -- "$@"; }

check_format() { tracked '*.c' '*.h' | xargs clang-format --dry-run -Werror; }
# tidy FILE…: runs clang-tidy on the product's C code among these files
tidy() { cmake_tree asan && tidy_built "$@"; }
# The same where the build has already made the headers that the files include.
tidy_built() {
	printf '%s\n' "$@" | sed -n '/^\(test\|kernel-config\)\//d; /\.c$/p' |
		xargs -r -P "$(nproc)" -n 1 "$top/test/tidy.sh" "$top/build/asan"
}
check_tidy() {
	local files
	readarray -t files < <(tracked '*.c')
	tidy "${files[@]}"
}
# What is not committed, and what the last day before the newest commit brought.
check_recent_tidy() {
	local files day
	day=$(($(git log -1 --format=%ct) - 86400))
	readarray -t files < <({
		git log --since="$day" --name-only --format=
		git diff --name-only HEAD
	} | sort -u | xargs -r git ls-files --)
	tidy "${files[@]}"
}
check_shell() {
	shellcheck --check-sourced "$top/dev" &&
		git -C "$top" grep -lE '^#!.*\b(ba)?sh\b' -- . ':!dev' | xargs shellcheck
}
# mypy reads the cache of earlier runs, one for each set of packages.
own_mypy() { MYPYPATH=${MYPYPATH:-sdk/python/src} python -m mypy --cache-dir "$cache/mypy-own" "$@"; }
check_own_types() {
	own_mypy --config-file test/mypy.ini test/system test/fault test/rootfs &&
		own_mypy --config-file test/mypy.ini test/service &&
		own_mypy --config-file test/mypy.ini test/packages &&
		MYPYPATH=sdk/python/src:bench own_mypy --config-file test/mypy.ini test/etcd rig/*.py &&
		MYPYPATH=sdk/python/src:rig:test/service:test own_mypy --strict bench/*.py packaging/*.py &&
		own_mypy --config-file test/mypy.ini test/*.py sdk/python/make_sync.py \
			orchestrator/api/*.py orchestrator/guestops/*.py test/unit/api/*.py
}
integrations_mypy() {
	integrations_python -m mypy --config-file test/integrations/mypy.ini --cache-dir "$cache/mypy" "$@"
}
# The SDK, its adapters and their tests, with the packages that the adapters are for.
check_all_types() {
	check_own_types && need_integrations_venv &&
		integrations_mypy sdk/python/src examples/*.py test/integrations &&
		integrations_mypy test/ui && integrations_mypy bench/ui &&
		integrations_python -m basedpyright --pythonpath "$(integrations_venv_dir)/bin/python" \
			--project test/integrations/pyrightconfig.json
}
# Every relative link in a document has a target.
check_links() { python test/links.py "$top"; }
# The synchronous SDK is generated from the asynchronous one.
check_sdk() { python sdk/python/make_sync.py --check; }
# The reference of the API is generated from its description.
check_reference() { python orchestrator/api/reference.py --check; }
# A room includes only headers of rooms that it declares.
check_rooms() { python test/rooms.py "$top"; }
# The alerts for operators fire when they should. The tool is a download of 19 MB.
check_alerts() {
	need_promtool && "$(promtool_dir)/promtool" check rules docs/operating/ramet.rules.yml &&
		"$(promtool_dir)/promtool" test rules docs/operating/ramet.rules.test.yml
}
# No package archive is named: packages come from those that the machine is configured for.
check_hosts() {
	! git -C "$top" grep -nIE '(deb|security|snapshot)[.]debian[.]org|(archive|security)[.]ubuntu[.]com|(files[.])?pypi(thonhosted)?[.]org|registry[.]npmjs|crates[.]io|proxy[.]golang'
}

# Checks of the whole tree that take seconds.
quick_style() { # GROUP
	beside_item "$1" clang-format check_format
	beside_item "$1" shellcheck check_shell
	beside_item "$1" "synchronous SDK" check_sdk
	beside_item "$1" "reference of the API" check_reference
	beside_item "$1" "links between documents" check_links
	beside_item "$1" "includes of the rooms" check_rooms
	beside_item "$1" "no registry is named" check_hosts
	beside_item "$1" "hook for commit messages" test/hooks/check.sh
}

group_style() {
	cd "$top"
	if [[ $all == yes ]]; then
		beside_item style types check_all_types
		beside_item style alerts check_alerts
	else
		beside_item style types check_own_types
	fi
	quick_style style
	wait
	if [[ $all == yes ]]; then
		item style clang-tidy check_tidy
	else
		item style "clang-tidy of recent changes" check_recent_tidy
	fi
}

group_unit() {
	cmake_tree asan || return
	pytest unit-sdk "$top/sdk/python/tests" &
	run_ctest asan unit unit-asan -j "$test_jobs"
	wait
	[[ $all == yes ]] || return 0
	# The whole tree has the tests of the library's defects, too.
	build_h2o_unpatched && cmake_tree release || return
	run_ctest release unit unit-gcc -j "$test_jobs"
	# Tests of code that shares memory between threads; the rest is single-threaded.
	cmake_tree tsan threaded_tests && run_ctest tsan threaded unit-tsan -j "$(nproc)"
}

# Needs the library without our patches, and h2spec.
group_h2o() {
	build_h2o_unpatched && build_h2spec && cmake_tree release || return
	run_ctest release h2o h2o
}

fuzz_one() { # BINARY
	local name found
	name=$(basename "$1")
	found=$top/build/fuzz-found/$name
	mkdir -p "$found"
	"$top/test/fuzz/corpus.sh" unpack "${name#fuzz_}" "$1.inputs" || return
	# libFuzzer's own status for a finding is 77, which elsewhere means skipped.
	"$1" -max_total_time="$fuzz_seconds" -timeout=60 -rss_limit_mb=2048 -verbosity=0 \
		-error_exitcode=1 -artifact_prefix="$found/../$name-" "$found" \
		"$top/test/fuzz/corpus/${name#fuzz_}" "$1.inputs"
}

fuzz_targets() { find "$top/build/$1/test/fuzz" -type f -name 'fuzz_*' -executable | sort; } # PRESET

# Each corpus belongs to a target: inputs of a renamed target would never be read.
check_corpus() {
	local name targets unread=0
	targets=$(fuzz_targets asan)
	for name in "$top"/test/fuzz/corpus/*; do
		name=$(basename "$name" .tar.xz)
		grep -q "/fuzz_$name\$" <<<"$targets" && continue
		echo "test/fuzz/corpus/$name: there is no fuzz target of this name"
		unread=1
	done
	return $unread
}

group_fuzz() {
	local binary
	cmake_tree asan || return
	item fuzz "names of the corpora" check_corpus
	run_ctest asan fuzz fuzz-replay -j "$(nproc)"
	[[ $all == yes ]] || return 0
	cmake_tree fuzz || return
	while read -r binary; do
		beside_item fuzz "new inputs of $(basename "$binary")" fuzz_one "$binary"
	done < <(fuzz_targets fuzz)
	wait
}

# Jails need cgroup v2, which the rig's host has, but this machine may lack.
jail_where_vms_run() {
	"$top/dev" host sh -c 'mkdir -p /tmp/native && tar -x -C /tmp/native' \
		< <(tar -C "$top/build/release/test/warden" -c native_jail warden_probe) &&
		"$top/dev" host /tmp/native/native_jail
}

# The tests measure what two threads of a VM do to each other, so they run one after the other.
group_native() {
	cmake_tree release vmm/all orchestrator/all guest/all bench/all test/native/all test/warden/all \
		test/unit/programs/all || return
	item native "jails where the VMs run" jail_where_vms_run
	run_ctest release installed native-installed
	if [[ ! -w /dev/kvm ]]; then
		echo "skipped: /dev/kvm is missing or not permitted here"
		record native 77 0 0 "tests that need /dev/kvm"
		return
	fi
	run_ctest release native native-gcc
	[[ $all == no ]] || { cmake_tree asan && run_ctest asan native native-asan; }
}

# Builds the packages, the part that no cache has twice, and one of the previous commit; then installs them
# on machines with a real systemd, in namespaces of this one.
group_packages() {
	local suite hosts=$top/build/package-hosts tiny=$top/build/release/test
	need_etcd && "$top/dev" package && step "packages again" package_again &&
		step "package of the previous commit" package_before &&
		step "tiny guest" cmake_tree release tiny-guest controllers &&
		rm -rf "$hosts" && mkdir -p "$hosts" || return
	for suite in "${!package_release[@]}"; do
		cached "$(package_host_dir "$suite")" "host of $suite" make_package_host "$suite"
		ln -sfn "$(package_host_dir "$suite")" "$hosts/${package_release[$suite]}"
	done
	# Mounts and cgroups need root.
	RAMET_PACKAGES=$top/build/packages RAMET_PACKAGES_BEFORE=$top/build/packages/.before \
		RAMET_PACKAGE_HOSTS=$hosts RAMET_TINY_GUEST=$tiny/native/tiny-guest \
		RAMET_CONTROLLERS=$tiny/packages/controllers.so RAMET_ETCD=$(etcd_dir)/etcd with=root_python \
		pytest packages -n "$(nproc)" "$top/test/packages"
}
root_python() { as_root env PYTHONDONTWRITEBYTECODE=1 "$(venv_dir)/bin/python" "$@"; }

# The sizes that the tests use, so that nothing else is prepared in the background.
export RAMET_TEST_SETTINGS=--sizes=1024x2x16,1024x1x16

# When another program takes the CPU from one CPU of the rig, the others soon wait for a lock that it
# holds. Has no effect unless root runs the tests.
export RAMET_RIG_NICE=-10

# with_service GROUP: starts the service, or records a failure. Groups that follow each other share it.
with_service() {
	local url=$results/service.url
	[[ -s $url ]] && "$top/dev" status >/dev/null 2>&1 ||
		"$top/dev" up "$RAMET_TEST_SETTINGS" >"$url" || {
		record "$1" 1 0 0 "the service starts"
		return 1
	}
	RAMET_HOST=$(cat "$url") && export RAMET_HOST
}

# tier: prints the marker of the tests that run
tier() { [[ $all == yes ]] && echo 'not alone or alone' || echo smoke; }

# on_stand_ins RESULT ARG…: runs pytest on stand-ins of VMs, whose agent is in the guests' root file
# system. Each of two workers has a service of its own.
on_stand_ins() {
	build_rootfs && cmake_tree asan ramet-init service_server || return
	RAMET_ROOTFS=$(rootfs_dir)/rootfs.ext4 RAMET_INIT=$top/build/asan/guest/ramet-init \
		SERVICE_SERVER=$top/build/asan/test/service/service_server \
		pytest "$@" -n 2 --dist loadfile
}

# Runs two test files at a time on one service; then the tests that must have the service alone.
group_system() {
	local with=python folders=("$top/test/system")
	on_stand_ins system-rootfs "$top/test/rootfs" || return
	with_service system || return
	if [[ $all == no ]]; then # also the tests of the commands
		need_integrations_venv || return
		with=integrations_python folders+=("$top/test/integrations")
	fi
	pytest system-parallel -m "($(tier)) and not alone" -n 2 --dist loadfile --no-loadscope-reorder "${folders[@]}"
	pytest system-alone -m "($(tier)) and alone" "${folders[@]}"
}

# need_fleet: makes what tests of a fleet with a real etcd and HAProxy need
need_fleet() {
	need_etcd && need_haproxy && cmake_tree asan ramet-fleet rametctl ramet-init service_server || return
	export RAMET_HAPROXY RAMET_BUILD=$top/build/asan RAMET_INIT=$top/build/asan/guest/ramet-init
	export SERVICE_SERVER=$top/build/asan/test/service/service_server
	RAMET_HAPROXY=$(haproxy_dir)
}

# With three members of etcd: the oldest version that is supported, and a current one.
on_etcd() {
	need_fleet && need_etcd_current && build_rootfs && cmake_tree asan fleet-swarm || return
	local tests=$top/test/etcd with=python
	export GUEST_ROOTFS INTEGRATIONS_PYTHON
	GUEST_ROOTFS=$(rootfs_dir)/rootfs.ext4 INTEGRATIONS_PYTHON=$(integrations_venv_dir)/bin/python
	RAMET_ETCD=$(etcd_dir)/etcd pytest integrations-etcd -n 2 --dist loadfile "$tests"
	RAMET_ETCD=$(etcd_current_dir)/etcd \
		pytest integrations-etcd-current -n 2 --dist loadfile -k 'not ten_minutes' "$tests"/test_{fleet,keys,swarm,faults}.py
}

group_integrations() {
	local with=integrations_python etcd
	need zsh fish # for the completions of the command line
	need chromium # for the page
	need_integrations_venv || return
	on_etcd & # most of the time it waits for leases to end
	etcd=$!
	on_stand_ins integrations-stand-ins -m 'not vm' "$top/test/integrations" || return
	on_stand_ins integrations-ui -m 'not vm' "$top/test/ui" || return
	wait "$etcd" || return
	with_service integrations || return
	pytest integrations-vms -m vm "$top/test/integrations"
	pytest integrations-ui-vms -m vm "$top/test/ui" # apart, since its conftest.py hides that of all
}

# Faults of a fleet, which need no guests; `all` runs them among integrations.
fleet_faults() {
	need_fleet || return
	RAMET_ETCD=$(etcd_dir)/etcd pytest fault-fleet -m smoke "$top/test/etcd"
}

group_fault() {
	[[ $all == yes ]] || fleet_faults || return
	with_service fault || return
	pytest fault -m "$(tier)" "$top/test/fault"
}

report() { /usr/bin/python3 -B "$top/test/report.py" "$results" "$@"; }

# execute_group GROUP: runs a group and keeps its status; report_group reports the results
execute_group() {
	local group=$1 status=0 took
	rm -f "$results/$group".* "$results/$group"-*
	say "$group …"
	timed "$results/$group.time" run_in_subshell "group_$group" </dev/null >"$log_dir/test-$group.log" 2>&1 || status=$?
	read -r -a took <"$results/$group.time"
	record "$group" 0 "${took[@]}" "(whole group)"
	echo $status >"$results/$group.status"
}

# report_group GROUP: adds the results of a group that has run to passed, failed, skipped and bad;
# shows its output if it failed
report_group() {
	local group=$1 status p f s log=$log_dir/test-$1.log text took names=()
	read -r status <"$results/$group.status"
	read -r -a took <"$results/$group.time"
	{ read -r p f s && mapfile -t names; } < <(report sum "$group" || echo 0 1 0)
	# A group that ended with an error, or that found nothing to run, has failed.
	[[ $f -gt 0 || ($status -eq 0 && $((p + s)) -gt 0) ]] || f=1
	text="$group: $p passed, $f failed, $s skipped (${took[0]%.*} s)"
	if [[ $f -eq 0 ]]; then
		say "$text"
	else
		cat "$log"
		say "$text; its output is above and in $log"
		[[ -n ${names[*]} ]] || names=("the group ended before its tests")
		bad+=("${names[@]/#/$group: }")
	fi
	passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
}
run_in_subshell() { ("$@"); }
run_group() { execute_group "$1" && report_group "$1"; }

# need_for_tests: installs packages and builds libraries that the tests need
need_for_tests() {
	need_for_build clang libclang-rt-dev clang-tidy clang-format llvm shellcheck git ccache \
		nftables iproute2 systemd
	need_venv
	build_h2o
}

# build_ahead GROUP…: builds the images and the product for the groups that need them, while the
# groups before them mostly wait. Who needs one by then waits for it.
build_ahead() {
	[[ " $* " == *" "@(native|system|integrations|fault)" "* ]] || return 0
	set -m
	"$top/dev" build </dev/null >"$log_dir/build-ahead.log" 2>&1 &
	groups+=($!)
	set +m
}

# group_of FOLDER: prints the group that runs the tests of the folder, if it is not unit
group_of() {
	case $1 in
	test/native | test/warden | test/unit/programs) echo native ;;
	test/h2o) echo h2o ;;
	test/fuzz*) echo fuzz ;;
	test/system | test/rootfs) echo system ;;
	test/integrations* | test/ui | test/etcd) echo integrations ;;
	test/fault) echo fault ;;
	test/hooks) echo style ;;
	test/packages) echo packages ;;
	esac
}

# run_folder FOLDER: builds and runs the tests of one folder, with the sanitizers
run_folder() {
	local folder=${1%/}
	step "build of $folder" cmake_tree asan "$folder/all"
	private_tmp ctest --test-dir "$top/build/asan/$folder" -L '^unit$' --output-on-failure --no-tests=error -j "$test_jobs"
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

# run_changed [REF]: the style checks and tests of the rooms that changed, and of those above them
run_changed() {
	local ref=${1:-HEAD} files chosen folders passed=0 failed=0 skipped=0 bad=()
	cd "$top"
	git rev-parse -q --verify "$ref^{commit}" >/dev/null || die "there is no commit '$ref'"
	[[ $# -gt 0 || -n $(git status --porcelain) ]] || ref=HEAD~1
	readarray -t files < <({
		git diff --name-only "$ref"
		git ls-files --others --exclude-standard
	} | sort -u)
	[[ ${#files[@]} -gt 0 ]] || die "nothing changed since $ref"
	mkdir -p "$results" "$log_dir"
	need_for_tests
	chosen=$(printf '%s\n' "${files[@]}" | python "$top/test/changed.py" "$top" folders)
	read -r -d '' -a folders <<<"$chosen" || true
	say "${#files[@]} files changed since $ref; their tests are in: ${folders[*]:-no folder}"
	run_group changed
	[[ $failed -eq 0 ]] || printf 'failed: %s\n' "${bad[@]}"
	printf '%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
	[[ $failed -eq 0 ]]
}

# The next two use the variables of run_changed.
group_changed() {
	local status=0
	quick_style changed
	[[ " ${files[*]}" != *.py* ]] || beside_item changed types check_own_types
	test_changed || status=$?
	wait
	return $status
}

test_changed() {
	local folder targets=() names
	for folder in "${folders[@]}"; do targets+=("$folder/all"); done
	[[ ${#targets[@]} -eq 0 ]] || cmake_tree asan "${targets[@]}" || return
	beside_item changed clang-tidy tidy_built "${files[@]}" # beside the tests, which mostly wait
	[[ " ${files[*]}" != *" sdk/python/"* ]] || pytest changed-sdk "$top/sdk/python/tests"
	[[ ${#folders[@]} -gt 0 ]] || return 0
	names=$(printf '%s\n' "${files[@]}" | python "$top/test/changed.py" "$top" tests "$top/build/asan") || return
	names=${names//$'\n'/|}
	[[ -z $names ]] || run_ctest asan "(unit|fuzz)" changed-unit -j "$test_jobs" -R "^($names)\$"
}

# fuzz_beside_faults: runs fuzz at a low priority beside fault, whose tests run one at a time and
# leave a CPU idle
fuzz_beside_faults() {
	local fuzz
	set -m
	fuzz_at_low_priority &
	fuzz=$!
	set +m
	groups+=("$fuzz")
	run_group fault
	wait "$fuzz"
	report_group fuzz
}
fuzz_at_low_priority() {
	renice -n 15 -p $BASHPID >/dev/null 2>&1 || true # it may be lower already
	execute_group fuzz
}

run_groups() { # GROUP…
	local group fuzz_later=no
	[[ $all == no || " $* " != *" fuzz "*"fault "* ]] || fuzz_later=yes
	for group in "$@"; do
		case $fuzz_later$group in
		yesfuzz) ;; # runs beside the faults
		yesfault) fuzz_beside_faults ;;
		*) run_group "$group" ;;
		esac
	done
}

main() {
	local group was_up=no times=1 run passed=0 failed=0 skipped=0 bad=()
	case ${1:-} in
	--slowest)
		report slowest
		return
		;;
	help | -h | --help)
		usage
		return
		;;
	changed)
		run_changed "${@:2}"
		return
		;;
	all)
		all=yes limit_s=${RAMET_TEST_LIMIT_S:-7200}
		shift
		;;
	*/*)
		run_folders "$@"
		return
		;;
	esac
	if [[ ${1:-} == --repeat ]]; then
		[[ ${2:-} =~ ^[1-9][0-9]{0,3}$ ]] || die "test: --repeat needs a number from 1 to 9999, not '${2:-}'"
		times=$2
		shift 2
	fi
	if [[ $# -eq 0 && $all == yes ]]; then
		set -- "${all_groups[@]}"
	elif [[ $# -eq 0 ]]; then
		set -- "${default_groups[@]}"
	fi
	for group in "$@"; do
		[[ " ${all_groups[*]} " == *" $group "* ]] ||
			die "unknown group '$group'; there are: ${all_groups[*]}, and folders such as test/unit/base"
	done
	mkdir -p "$results" "$log_dir"
	rm -f "$results/service.url"
	need_for_tests
	build_ahead "$@"
	"$top/dev" status >/dev/null 2>&1 && was_up=yes
	for ((run = 1; run <= times; run++)); do
		[[ $times -eq 1 ]] || say "run $run of $times"
		run_began=$SECONDS
		run_groups "$@"
	done
	# Groups that use the service leave it running for the next group.
	[[ $was_up == yes || " $* " != *" "@(native|system|integrations|fault)" "* ]] || "$top/dev" down </dev/null
	if [[ $failed -gt 0 && $times -gt 1 ]]; then
		printf 'failed, with the number of runs of %d:\n' "$times"
		printf '%s\n' "${bad[@]}" | sort | uniq -c | sort -rn
	elif [[ $failed -gt 0 ]]; then
		printf 'failed: %s\n' "${bad[@]}"
	fi
	printf '%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
	[[ $failed -eq 0 ]]
}

main "$@"
