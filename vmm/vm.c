// SPDX-License-Identifier: Apache-2.0
#include "vmm/vm-internal.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "proto/platform.h"
#include "vmm/arch/x86/boot.h"
#include "vmm/arch/x86/layout.h"
#include "vmm/backend/layer.h"
#include "vmm/kvm/pagemap.h"

#define VCPU_NICE 5
/* Time between two steps of about 100 us, which use a tenth of the loop's time. */
#define FLATTEN_EVERY_NS 1000000u

/* --- The end of the guest: detected on a vCPU thread, handled on the loop's thread --- */

__attribute__((format(printf, 4, 5))) static void
end_guest(struct vm *vm, unsigned vcpu, enum ctl_end_reason reason, const char *format, ...)
{
	va_list ap;

	pthread_mutex_lock(&vm->end.lock);
	if (!vm->end.set) {
		vm->end.set = true;
		vm->end.reason = reason;
		vm->end.vcpu = vcpu;
		va_start(ap, format);
		vsnprintf(vm->end.text, sizeof(vm->end.text), format, ap);
		va_end(ap);
	}
	pthread_mutex_unlock(&vm->end.lock);
	vcpus_halt(vm->vcpus);
	eventfd_write(vm->end.fd, 1);
}

static void on_i8042_request(void *arg, enum i8042_request what)
{
	struct vm *vm = arg;

	if (what == I8042_RESET)
		end_guest(vm, 0, CTL_END_RESET, "the guest asked for a reboot");
	else
		end_guest(vm, 0, CTL_END_POWEROFF, "the guest powered itself off");
}

/* Called on a vCPU thread. */
static void on_unique(void *arg, unsigned who)
{
	struct vm *vm = arg;

	if (who == PLATFORM_GENERATION_KERNEL)
		vcpus_follow(vm->vcpus);
	else
		vio_net_release(vio_mmio_device(vm->machine.devices[MACHINE_NET]));
}

static void on_end_event(void *arg, uint32_t events)
{
	struct vm *vm = arg;
	eventfd_t count;

	if (eventfd_read(vm->end.fd, &count) < 0 || vm->state == CTL_GUEST_ENDED)
		return;
	vcpus_pause(vm->vcpus);
	vm->state = CTL_GUEST_ENDED;
	log_info("%s", vm->end.text);
	if (vm->end.reason == CTL_END_CRASH || vm->end.reason == CTL_END_HOST)
		vcpu_log_registers(vm->kvm, vm->end.vcpu);
	if (vm->cancel)
		vm->cancel(vm);
	if (vm->on_ended)
		vm->on_ended(vm->on_ended_arg, vm->end.reason, vm->end.text);
}

/* --- Exits, on vCPU threads --- */

static void serve_port(struct vm *vm, struct kvm_run *run)
{
	uint8_t *data = (uint8_t *)run + run->io.data_offset;

	for (uint32_t i = 0; i < run->io.count; i++, data += run->io.size) {
		if (run->io.direction == KVM_EXIT_IO_IN)
			bus_read(&vm->machine.bus, BUS_PORT, run->io.port, data, run->io.size);
		else
			bus_write(&vm->machine.bus, BUS_PORT, run->io.port, data, run->io.size);
	}
}

static void serve_mmio(struct vm *vm, struct kvm_run *run)
{
	if (run->mmio.is_write)
		bus_write(&vm->machine.bus, BUS_MMIO, run->mmio.phys_addr, run->mmio.data,
			  run->mmio.len);
	else
		bus_read(&vm->machine.bus, BUS_MMIO, run->mmio.phys_addr, run->mmio.data,
			 run->mmio.len);
}

static void serve_exit(void *arg, unsigned vcpu, struct kvm_run *run, int error)
{
	struct vm *vm = arg;

	if (error) {
		/*
		 * EFAULT: the guest accessed memory that a slot covers but RAM does not
		 * (gm_resize).
		 */
		end_guest(vm, vcpu, error == -EFAULT ? CTL_END_CRASH : CTL_END_HOST,
			  error == -EFAULT ? "the guest crashed: vCPU %u accessed memory that does "
					     "not exist: %s"
					   : "vCPU %u can't run on this host: %s",
			  vcpu, strerror(-error));
		return;
	}
	switch (run->exit_reason) {
	case KVM_EXIT_IO:
		serve_port(vm, run);
		break;
	case KVM_EXIT_MMIO:
		serve_mmio(vm, run);
		break;
	case KVM_EXIT_SHUTDOWN:
		end_guest(vm, vcpu, CTL_END_CRASH, "the guest crashed: triple fault on vCPU %u",
			  vcpu);
		break;
	case KVM_EXIT_INTERNAL_ERROR:
		end_guest(vm, vcpu, CTL_END_CRASH,
			  "the guest crashed: KVM can't continue vCPU %u (internal error %u%s)",
			  vcpu, run->internal.suberror,
			  run->internal.suberror == KVM_INTERNAL_ERROR_EMULATION
				  ? ", an instruction it does not emulate"
				  : "");
		break;
	case KVM_EXIT_FAIL_ENTRY:
		end_guest(vm, vcpu, CTL_END_CRASH,
			  "the guest crashed: the CPU refuses to enter vCPU %u (reason 0x%llx)",
			  vcpu, run->fail_entry.hardware_entry_failure_reason);
		break;
	default:
		end_guest(vm, vcpu, CTL_END_CRASH,
			  "the guest crashed: unsupported exit %u of vCPU %u", run->exit_reason,
			  vcpu);
	}
}

static int confine_thread(void *arg, struct err *e)
{
	struct vm *vm = arg;

	/*
	 * Gives the loop's thread priority, since guest and service wait for it. EACCES means that
	 * the priority is even lower already, inherited from rametd.
	 */
	if (setpriority(PRIO_PROCESS, (id_t)gettid(), VCPU_NICE) < 0 && errno != EACCES)
		return err_set(e, errno, "lower the priority of a vCPU's thread");
	return confine_vcpu(vm->confine, e);
}

static void confine_running_thread(void *arg, unsigned vcpu)
{
	struct vm *vm = arg;
	struct err e = {0};

	if (confine_running(vm->confine, &e))
		end_guest(vm, vcpu, CTL_END_HOST, "vCPU %u can't be confined: %s", vcpu, e.text);
}

static const struct vcpus_ops vcpu_ops = {
	.on_start = confine_thread,
	.on_first_run = confine_running_thread,
	.on_exit = serve_exit,
};

/* --- The blank VM --- */

static int set_cpuid(struct vm *vm, struct err *e)
{
	scoped_free struct cpuid_list *list = calloc(1, sizeof(*list));

	if (!list)
		return err_set(e, ENOMEM, "list the CPUID leaves");
	for (unsigned i = 0; i < vm->cfg.vcpus; i++) {
		int r;

		cpuid_for_vcpu(list, &vm->host.supported, i, vm->cfg.vcpus);
		r = kvm_vcpu_set_cpuid(&vm->kvm->vcpu[i], list, e);
		if (r)
			return err_context(e, "vCPU %u", i);
	}
	return 0;
}

static int watch_end(struct vm *vm, struct err *e)
{
	vm->end.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (vm->end.fd < 0)
		return err_set(e, errno, "create an eventfd");
	return event_watch_add(vm->loop, vm->end.fd, EPOLLIN, on_end_event, vm, &vm->end.watch, e);
}

/* Opens the page map now, while this process may still open files. */
static int make_ram(struct vm *vm, struct err *e)
{
	struct err none = {0};
	int pagemap = pagemap_open(vm->cfg.proc_fd, &none);

	close_fd(&vm->cfg.proc_fd);
	if (pagemap < 0) /* not fatal: only forks of a VM that runs on a snapshot are refused */
		log_warn("%s; a VM that runs on a snapshot can't be forked", none.text);
	return ram_new(&vm->ram, &vm->mem, pagemap < 0 ? -1 : pagemap, e);
}

static int make_machine(struct vm *vm, struct err *e)
{
	const struct machine_config mc = {
		.mem = &vm->mem,
		.ram = vm->ram,
		.kvm = vm->kvm,
		.loop = vm->loop,
		.cid = vm->cfg.cid,
		.disk = {.bytes_s = vm->cfg.disk_bytes_s, .ops_s = vm->cfg.disk_ops_s},
		.tap_fd = vm->cfg.tap_fd,
		.ipv6 = vm->cfg.ipv6,
		.debug_serial = vm->cfg.debug_serial,
		.on_request = on_i8042_request,
		.on_unique = on_unique,
		.arg = vm,
	};

	return machine_init(&vm->machine, &mc, e);
}

static int make_blank(struct vm *vm, struct err *e)
{
	int r = kvm_host_init(&vm->host, vm->cfg.kvm_fd, e);

	if (!r)
		r = gm_reserve(&vm->mem, (uint64_t)vm->cfg.ram_mib << 20, e);
	if (!r)
		r = make_ram(vm, e);
	if (!r)
		r = kvm_vm_new(&vm->kvm, &vm->host, vm->cfg.vcpus, &vm->mem, e);
	if (!r)
		r = set_cpuid(vm, e);
	if (!r)
		r = make_machine(vm, e);
	if (!r)
		r = watch_end(vm, e);
	if (!r)
		r = confine_new(&vm->confine, e);
	if (!r)
		r = vcpus_new(&vm->vcpus, vm->kvm, &vcpu_ops, vm, e);
	return r;
}

int vm_new(struct vm **out, const struct vm_config *cfg, struct event_loop *loop, struct err *e)
{
	struct vm *vm = calloc(1, sizeof(*vm));
	int r;

	if (!vm)
		return err_set(e, ENOMEM, "create the VM");
	vm->cfg = *cfg;
	vm->loop = loop;
	vm->fork_writable = -1;
	vm->end.fd = -1;
	vm->state = CTL_BLANK;
	pthread_mutex_init(&vm->end.lock, NULL);
	r = make_blank(vm, e);
	if (!r)
		*out = vm;
	return r;
}

void vm_on_ended(struct vm *vm, vm_ended_fn *fn, void *arg)
{
	vm->on_ended = fn;
	vm->on_ended_arg = arg;
}

int vm_confine(struct vm *vm, struct err *e)
{
	return confine_loop(vm->confine, e);
}

uint32_t vm_ram_mib(const struct vm *vm)
{
	return (uint32_t)(vm->mem.bytes >> 20);
}

enum ctl_vm_state vm_state(const struct vm *vm)
{
	return vm->state;
}

/* --- Boot and restore --- */

static int set_disk(struct vm *vm, const struct vm_disk *d, struct err *e)
{
	struct layer_stack *s;

	if (layer_stack_open(&s, *d->base, d->layers, d->nlayers, *d->writable, d->bytes, e))
		return err_context(e, "the disk");
	*d->base = *d->writable = -1;
	for (unsigned i = 0; i < d->nlayers; i++)
		d->layers[i] = -1;
	vio_blk_set_disk(vm_blk(vm), s);
	return 0;
}

static int begin_start(struct vm *vm, uint32_t ram_mib, struct err *e)
{
	if (vm->state != CTL_BLANK)
		return err_say(e, EBUSY, "this VM has already been booted or restored");
	if (vm->unusable)
		return err_say(e, EINVAL, "an earlier boot or restore failed: this VM is unusable");
	vm->unusable = true;
	return gm_resize(&vm->mem, (uint64_t)ram_mib << 20, e);
}

static void start(struct vm *vm)
{
	vm->unusable = false;
	vm->state = CTL_RUNNING;
	vcpus_run(vm->vcpus);
	vm->started_at = now_ns();
}

static int set_boot_state(struct vm *vm, uint64_t entry, struct err *e)
{
	scoped_free struct vcpu_state *s = calloc(1, sizeof(*s));

	if (!s)
		return err_set(e, ENOMEM, "set up the vCPUs");
	for (unsigned i = 0; i < vm->cfg.vcpus; i++) {
		int r = vcpu_state_get(vm->kvm, i, s, e);

		if (r)
			return r;
		boot_vcpu_state(s, i, entry);
		r = vcpu_state_set(vm->kvm, i, s, e);
		if (!r)
			r = vcpu_state_finish(vm->kvm, i, s, e);
		if (r)
			return r;
	}
	return 0;
}

static int load_guest(struct vm *vm, int kernel_fd, int initrd_fd, const char *client_cmdline,
		      struct err *e)
{
	struct boot_device devices[MACHINE_DEVICES];
	char cmdline[CMDLINE_SIZE];
	const struct boot_source src = {
		.kernel_fd = kernel_fd,
		.initrd_fd = initrd_fd,
		.cmdline = cmdline,
		.vcpus = vm->cfg.vcpus,
	};
	uint64_t entry;
	int r;

	machine_describe(devices);
	r = boot_cmdline(cmdline, client_cmdline, devices, MACHINE_DEVICES, e);
	if (!r)
		r = ram_back_with_memfd(vm->ram, e);
	if (!r)
		r = boot_load(&vm->mem, &src, &entry, e);
	return r ? r : set_boot_state(vm, entry, e);
}

int vm_boot(struct vm *vm, uint32_t ram_mib, int kernel_fd, int initrd_fd, const char *cmdline,
	    const struct vm_disk *disk, struct err *e)
{
	int r = begin_start(vm, ram_mib, e);

	if (!r)
		r = set_disk(vm, disk, e);
	if (!r)
		r = load_guest(vm, kernel_fd, initrd_fd, cmdline, e);
	if (r)
		return r;
	start(vm);
	return 0;
}

struct vio_dev *vm_blk(const struct vm *vm)
{
	return vio_mmio_device(vm->machine.devices[MACHINE_BLK]);
}

struct state_parts vm_parts(struct vm *vm)
{
	return (struct state_parts){
		.kvm = vm->kvm,
		.vcpus = vm->vcpus,
		.cmos = &vm->machine.cmos,
		.generation = &vm->machine.generation,
		.devices = vm->machine.devices,
		.ndevices = MACHINE_DEVICES,
		.ram_mib = vm_ram_mib(vm),
		.mem = &vm->mem,
		.working_set = ram_working_set(vm->ram),
	};
}

/*
 * Restores the devices on this thread, while the vCPU threads set up and then run their vCPUs. The
 * devices stay quiesced until vm_started, so requests of the guest wait.
 */
static int restore_parts(struct vm *vm, struct state_restore *s, const struct vm_disk *disk,
			 struct err *e)
{
	struct err vcpus_err = {0};
	int r, vcpus_r;

	state_start_vcpus(s);
	r = set_disk(vm, disk, e);
	if (!r)
		r = state_set_devices(s, e);
	if (!r && generation_promised(&vm->machine.generation) & PLATFORM_GENERATION_AGENT)
		vio_net_hold(vio_mmio_device(vm->machine.devices[MACHINE_NET]));
	if (!r)
		start(vm);
	vcpus_r = vcpus_prepared(vm->vcpus, &vcpus_err);
	vm->started_at = r || vcpus_r ? 0 : now_ns();
	if (r || !vcpus_r)
		return r;
	vcpus_pause(vm->vcpus);
	vm->state = CTL_BLANK;
	vm->unusable = true;
	*e = vcpus_err;
	return vcpus_r;
}

int vm_restore(struct vm *vm, int state_fd, const struct vm_memory *memory,
	       const struct vm_disk *disk, struct err *e)
{
	struct state_restore *s = NULL;
	struct state_parts p;
	int r = begin_start(vm, memory->ram_mib, e);

	p = vm_parts(vm);
	if (!r)
		r = state_open(&s, &p, state_fd, e);
	if (!r)
		r = ram_back_with_snapshot(vm->ram, memory->fds[0], memory->fds + 1,
					   memory->nlayers, e);
	if (!r)
		r = restore_parts(vm, s, disk, e);
	vm->restored = !r;
	state_close(s);
	return r;
}

/* --- Running --- */

int vm_check_free(const struct vm *vm, struct err *e)
{
	if (vm->state != CTL_RUNNING)
		return err_say(e, EINVAL, "the VM is not running");
	if (vm->on_paused || vm->on_forked)
		return err_say(e, EBUSY, "the VM is being %s", vm->on_paused ? "paused" : "forked");
	return 0;
}

static void on_flatten(void *arg)
{
	struct vm *vm = arg;

	if (vm->state == CTL_RUNNING && !vm->on_paused && ram_flatten_step(vm->ram))
		event_timer_set(vm->loop, &vm->flatten, FLATTEN_EVERY_NS);
}

void vm_flatten(struct vm *vm)
{
	vm->flatten.fn = on_flatten;
	vm->flatten.arg = vm;
	event_timer_set(vm->loop, &vm->flatten, FLATTEN_EVERY_NS);
}

static void resume_devices(struct vm *vm)
{
	for (unsigned i = 0; i < MACHINE_DEVICES; i++)
		vio_mmio_resumed(vm->machine.devices[i]);
}

void vm_started(struct vm *vm)
{
	struct err e = {0};

	if (confine_running(vm->confine, &e)) {
		end_guest(vm, 0, CTL_END_HOST, "the VM can't be confined: %s", e.text);
		return;
	}
	if (!vm->restored)
		return;
	resume_devices(vm);
	vm_flatten(vm);
}

uint64_t vm_running_since(const struct vm *vm)
{
	return vm->started_at;
}

/* Makes the guest's kernel do what it does first after a restore. */
static void act_restored(struct vm *vm)
{
	struct err e = {0};

	if (generation_promised(&vm->machine.generation) & PLATFORM_GENERATION_KERNEL &&
	    irq_pulse(vm->kvm, PLATFORM_GENERATION_IRQ, &e))
		log_warn("the working set lacks the reseed of the guest's kernel: %s", e.text);
	resume_devices(vm);
}

int vm_record(struct vm *vm, struct err *e)
{
	int r = vm_check_free(vm, e);

	if (r)
		return r;
	if (!vm->host.pre_faults)
		return err_say(e, ENOTSUP, "this host's KVM can't map pages ahead");
	r = ram_record(vm->ram, e);
	if (!r)
		act_restored(vm);
	return r;
}

/* --- Connections and statistics --- */

int vm_connect(struct vm *vm, const struct ctl_msg *m, int *stream_fd,
	       void (*done)(void *arg, int result), void *arg, struct err *e)
{
	if (vm->state != CTL_RUNNING && vm->state != CTL_PAUSED)
		return err_say(e, ENOTCONN, "there is no guest to connect to");
	vio_vsock_connect(vio_mmio_device(vm->machine.devices[MACHINE_VSOCK]), m->connect.port,
			  m->connect.vital, take_fd(stream_fd), done, arg);
	return 0;
}

void vm_stats(const struct vm *vm, struct ctl_msg *reply)
{
	struct vio_dev *blk = vm_blk(vm);
	struct vio_blk_stats io = vio_blk_stats(blk);
	struct vio_net_stats net = vio_net_stats(vio_mmio_device(vm->machine.devices[MACHINE_NET]));

	reply->reply.stats.uptime_ns = vm->started_at ? now_ns() - vm->started_at : 0;
	reply->reply.stats.exits = vcpus_exits(vm->vcpus);
	reply->reply.stats.disk_read_bytes = io.read_bytes;
	reply->reply.stats.disk_write_bytes = io.write_bytes;
	if (vio_blk_disk(blk))
		reply->reply.stats.disk_layer_bytes = layer_writable_bytes(vio_blk_disk(blk));
	reply->reply.stats.vsock_connections =
		vio_vsock_connections(vio_mmio_device(vm->machine.devices[MACHINE_VSOCK]));
	reply->reply.stats.net_rx_bytes = net.rx_bytes;
	reply->reply.stats.net_tx_bytes = net.tx_bytes;
	reply->reply.stats.net_dropped = net.rx_dropped + net.tx_dropped;
}
