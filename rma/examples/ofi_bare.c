/* What ofi_figures.rs compares with: bare calls of libfabric between two processes, each on its own core, both spinning.
 * cc -O2 ofi_bare.c -lfabric; prints microseconds of a round trip of 64 bytes and of a read of 8, and GB/s of writes of 1 MiB. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { TRIPS = 5000, READS = 5000, WRITES = 500, IN_FLIGHT = 8, MIB = 1 << 20, NAME = 256 };

static struct fid_ep *ep;
static struct fid_cq *cq;
static struct fid_av *av;
static struct fid_mr *mr;
static char *memory, name[NAME];
static size_t inject_max;
static int virtual_addresses;
static struct fi_context2 contexts[IN_FLIGHT + 1];

static void check(long code, const char *what) {
    if (code < 0) {
        fprintf(stderr, "%s: %s\n", what, fi_strerror((int)-code));
        exit(1);
    }
}

static void on_core(int core) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(core, &set);
    sched_setaffinity(0, sizeof set, &set);
}

static void open_side(const char *provider) {
    struct fi_info *hints = fi_allocinfo(), *list, *info;
    hints->caps = FI_MSG | FI_RMA;
    hints->mode = FI_CONTEXT | FI_CONTEXT2;
    hints->ep_attr->type = FI_EP_RDM;
    hints->domain_attr->threading = FI_THREAD_SAFE;
    hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    hints->fabric_attr->prov_name = strdup(provider);
    check(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &list), "fi_getinfo");
    for (info = list; info; info = info->next) {
        struct sockaddr_in *address = info->src_addr;
        if (strcmp(info->fabric_attr->prov_name, provider) == 0 &&
            (info->addr_format == FI_ADDR_STR ||
             (info->addr_format == FI_SOCKADDR_IN && address->sin_addr.s_addr == htonl(INADDR_LOOPBACK))))
            break;
    }
    if (!info) exit(2);
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fi_cq_attr cq_attr = {.size = 1024, .format = FI_CQ_FORMAT_MSG};
    struct fi_av_attr av_attr = {.type = info->domain_attr->av_type, .count = 2};
    check(fi_fabric(info->fabric_attr, &fabric, NULL), "fi_fabric");
    check(fi_domain(fabric, info, &domain, NULL), "fi_domain");
    check(fi_cq_open(domain, &cq_attr, &cq, NULL), "fi_cq_open");
    check(fi_av_open(domain, &av_attr, &av, NULL), "fi_av_open");
    check(fi_endpoint(domain, info, &ep, NULL), "fi_endpoint");
    check(fi_ep_bind(ep, &av->fid, 0), "bind");
    check(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV), "bind");
    check(fi_enable(ep), "fi_enable");
    memory = aligned_alloc(4096, 2 * MIB);
    memset(memory, 1, 2 * MIB);
    check(fi_mr_reg(domain, memory, 2 * MIB, FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE, 0,
                    77, 0, &mr, NULL), "fi_mr_reg");
    size_t bytes = sizeof name;
    check(fi_getname(&ep->fid, name, &bytes), "fi_getname");
    inject_max = info->tx_attr->inject_size;
    virtual_addresses = info->domain_attr->mr_mode & FI_MR_VIRT_ADDR;
}

/* Completions with this context, or any; others are receives, which are answered if `peer` is given. */
static int poll_once(void) {
    struct fi_cq_msg_entry entry;
    long count = fi_cq_read(cq, &entry, 1);
    if (count == -FI_EAGAIN) return 0;
    if (count < 0) {
        struct fi_cq_err_entry error = {0};
        fi_cq_readerr(cq, &error, 0);
        fprintf(stderr, "completion: %s\n", fi_strerror(error.err));
        exit(1);
    }
    return entry.flags & FI_RECV ? 2 : 1;
}

static int sent_waits;
static void send_to(fi_addr_t peer) {
    long code;
    do {
        code = inject_max >= 64 ? fi_inject(ep, memory + MIB, 64, peer)
                                : fi_send(ep, memory + MIB, 64, fi_mr_desc(mr), peer, &contexts[0]);
        if (code == -FI_EAGAIN) (void)!poll_once();
    } while (code == -FI_EAGAIN);
    check(code, "send");
    if (inject_max < 64) sent_waits++;
}

static void receive(void) {
    check(fi_recv(ep, memory + MIB + 4096, 4096, fi_mr_desc(mr), FI_ADDR_UNSPEC, &contexts[IN_FLIGHT]), "fi_recv");
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec * 1e-9;
}

int main(int count, char **arguments) {
    if (count < 2) return 2;
    int there[2], back[2];
    if (pipe(there) || pipe(back)) return 1;
    pid_t child = fork();
    on_core(child == 0);
    open_side(arguments[1]);
    int from = child ? back[0] : there[0], to = child ? there[1] : back[1];
    uint64_t mine[2] = {virtual_addresses ? (uint64_t)memory : 0, fi_mr_key(mr)}, remote[2];
    char other[NAME];
    receive();
    if (write(to, name, NAME) != NAME || write(to, mine, 16) != 16) return 1;
    if (read(from, other, NAME) != NAME || read(from, remote, 16) != 16) return 1;
    fi_addr_t peer;
    check(fi_av_insert(av, other, 1, &peer, 0, NULL), "fi_av_insert");
    if (!child) {
        for (;;)
            if (poll_once() == 2) {
                receive();
                send_to(peer);
            }
    }
    double begun = 0;
    for (int trip = -100; trip < TRIPS; trip++) {
        if (trip == 0) begun = now();
        send_to(peer);
        while (poll_once() != 2) {}
        receive();
    }
    double trip = (now() - begun) * 1e6 / TRIPS;
    for (int index = -100; index < READS; index++) {
        if (index == 0) begun = now();
        long code;
        while ((code = fi_read(ep, memory, 8, fi_mr_desc(mr), peer, remote[0], remote[1], &contexts[1])) == -FI_EAGAIN)
            poll_once();
        check(code, "fi_read");
        while (poll_once() != 1) {}
    }
    double read_time = (now() - begun) * 1e6 / READS;
    int posted = 0, done = -20;
    begun = now();
    for (posted = -20; done < WRITES;) {
        if (done == 0) begun = now();
        if (posted < WRITES && posted - done < IN_FLIGHT) {
            struct iovec piece = {memory, MIB};
            struct fi_rma_iov target = {remote[0], MIB, remote[1]};
            void *descriptor = fi_mr_desc(mr);
            struct fi_msg_rma message = {.msg_iov = &piece, .desc = &descriptor, .iov_count = 1, .addr = peer,
                .rma_iov = &target, .rma_iov_count = 1, .context = &contexts[(posted + 24) % IN_FLIGHT]};
            long code = fi_writemsg(ep, &message, FI_DELIVERY_COMPLETE);
            if (code == 0) posted++;
            else if (code != -FI_EAGAIN) check(code, "fi_writemsg");
        }
        if (poll_once() == 1) done++;
    }
    double rate = (double)WRITES * MIB / (now() - begun) / 1e9;
    printf("%.3f %.3f %.3f\n", trip, read_time, rate);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    return 0;
}
