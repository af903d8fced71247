/* Watches what a process does to the files below one folder: journals it, or makes it fail.
 *
 * Every system call that changes files is trapped by seccomp, also those that libraries make
 * without libc (safetensors renames its files that way, so LD_PRELOAD does not see it). The
 * handler of SIGSYS makes the call itself, from the one address that the filter lets through. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <ucontext.h>
#include <unistd.h>

#ifndef __x86_64__
#error "the registers of a system call are known here for x86-64 alone"
#endif

extern long shim_call(long number, long a, long b, long c, long d, long e, long f);
extern char shim_after[];
__asm__(".text\n"
        ".globl shim_call\n"
        "shim_call:\n"
        "  mov %rdi, %rax\n"
        "  mov %rsi, %rdi\n"
        "  mov %rdx, %rsi\n"
        "  mov %rcx, %rdx\n"
        "  mov %r8, %r10\n"
        "  mov %r9, %r8\n"
        "  mov 8(%rsp), %r9\n"
        "  syscall\n"
        ".globl shim_after\n"
        "shim_after:\n"
        "  ret\n");

enum { OPEN = 1, WRITE, TRUNCATE, FLUSH, RENAME, UNLINK, RMDIR, MKDIR, MAP, LINK, MARK };

struct record {
    uint32_t what, first, second, created;
    uint64_t inode, offset, length;
    int64_t result;
};

static char root[4096];
static size_t root_length;
static int journal = -1;
static volatile int lock;
static long failing, count; /* the number of the call that fails, from 0; how many there were */
static int failing_error, failing_on, failing_kinds;
static int watching;

static void take(void) {
    while (__sync_lock_test_and_set(&lock, 1))
        ;
}

static void give(void) { __sync_lock_release(&lock); }

static int below(const char *path) {
    return strncmp(path, root, root_length) == 0 &&
           (path[root_length] == '/' || path[root_length] == 0);
}

static int path_of(int handle, char *path) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", handle);
    ssize_t length = readlink(link, path, 4095);
    if (length < 0) return 0;
    path[length] = 0;
    return 1;
}

/* The whole path of a name that is relative to a folder; 0 if it is not below the root. */
static int whole(int folder, const char *name, char *path) {
    if (name == NULL) return 0;
    if (name[0] == '/') {
        snprintf(path, 4096, "%s", name);
    } else {
        char above[4096];
        if (folder == AT_FDCWD) {
            if (getcwd(above, sizeof above) == NULL) return 0;
        } else if (!path_of(folder, above)) {
            return 0;
        }
        snprintf(path, 4096, "%.2000s/%.2000s", above, name);
    }
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/') path[--length] = 0;
    return below(path);
}

static void put(const void *data, size_t length) {
    while (length > 0) {
        long done = shim_call(SYS_write, journal, (long)data, length, 0, 0, 0);
        if (done <= 0) return;
        data = (const char *)data + done;
        length -= done;
    }
}

static void note(struct record made, const char *first, const char *second, const void *data) {
    if (journal < 0) return;
    made.first = strlen(first);
    made.second = strlen(second);
    if (data == NULL) made.length = 0;
    put(&made, sizeof made);
    put(first, made.first);
    put(second, made.second);
    put(data, made.length);
}

static int fails(int what) {
    if (!(failing_kinds >> what & 1)) return 0;
    long number = count++;
    return failing >= 0 && (failing_on ? number >= failing : number == failing);
}

static long act(long n, long a, long b, long c, long d, long e, long f) {
    char first[4096], second[4096] = "";
    struct record made = {0};
    int is_below = 0;
    switch (n) {
    case SYS_open: case SYS_creat: case SYS_openat:
        made.what = OPEN;
        is_below = n == SYS_openat ? whole(a, (char *)b, first) : whole(AT_FDCWD, (char *)a, first);
        break;
    case SYS_write: case SYS_pwrite64: case SYS_writev:
        made.what = WRITE;
        is_below = a != journal && path_of(a, first) && below(first);
        break;
    case SYS_ftruncate: case SYS_fallocate:
        made.what = TRUNCATE;
        is_below = path_of(a, first) && below(first);
        break;
    case SYS_truncate:
        made.what = TRUNCATE;
        is_below = whole(AT_FDCWD, (char *)a, first);
        break;
    case SYS_fsync: case SYS_fdatasync:
        made.what = FLUSH;
        is_below = path_of(a, first) && below(first);
        break;
    case SYS_rename:
        made.what = RENAME;
        is_below = whole(AT_FDCWD, (char *)a, first) | whole(AT_FDCWD, (char *)b, second);
        break;
    case SYS_renameat: case SYS_renameat2:
        made.what = RENAME;
        is_below = whole(a, (char *)b, first) | whole(c, (char *)d, second);
        break;
    case SYS_link: case SYS_symlink:
        made.what = LINK;
        is_below = whole(AT_FDCWD, (char *)b, first);
        break;
    case SYS_linkat:
        made.what = LINK;
        is_below = whole(c, (char *)d, first);
        break;
    case SYS_unlink:
        made.what = UNLINK;
        is_below = whole(AT_FDCWD, (char *)a, first);
        break;
    case SYS_rmdir:
        made.what = RMDIR;
        is_below = whole(AT_FDCWD, (char *)a, first);
        break;
    case SYS_unlinkat:
        made.what = c & AT_REMOVEDIR ? RMDIR : UNLINK;
        is_below = whole(a, (char *)b, first);
        break;
    case SYS_mkdir:
        made.what = MKDIR;
        is_below = whole(AT_FDCWD, (char *)a, first);
        break;
    case SYS_mkdirat:
        made.what = MKDIR;
        is_below = whole(a, (char *)b, first);
        break;
    case SYS_mmap:
        made.what = MAP;
        is_below = path_of(e, first) && below(first);
        break;
    }
    if (!watching || !is_below) return shim_call(n, a, b, c, d, e, f);

    take();
    long result;
    struct stat about;
    made.created = made.what == OPEN && stat(first, &about) != 0;
    long flags = n == SYS_openat ? c : b;
    int is_there = made.what != UNLINK || lstat(first, &about) == 0; /* or it fails by itself */
    if (is_there && fails(made.what)) {
        result = -failing_error;
    } else {
        long before = made.what == WRITE ? lseek(a, 0, SEEK_CUR) : 0;
        result = shim_call(n, a, b, c, d, e, f);
        if (result >= 0) {
            const void *data = NULL;
            char joined[1 << 16];
            made.result = result;
            switch (made.what) {
            case OPEN:
                fstat(result, &about);
                made.inode = about.st_ino;
                made.offset = n == SYS_creat || flags & O_TRUNC;
                break;
            case WRITE:
                fstat(a, &about);
                made.inode = about.st_ino;
                made.length = result;
                data = (void *)b;
                made.offset = n == SYS_pwrite64 ? d : before;
                if (n != SYS_pwrite64 && fcntl(a, F_GETFL) & O_APPEND)
                    made.offset = lseek(a, 0, SEEK_CUR) - result;
                if (n == SYS_writev) { /* short ones only, as Python makes none */
                    size_t filled = 0;
                    for (int part = 0; part < c && filled < sizeof joined; part++) {
                        const struct iovec *one = (const struct iovec *)b + part;
                        size_t length = one->iov_len;
                        if (length > sizeof joined - filled) length = sizeof joined - filled;
                        memcpy(joined + filled, one->iov_base, length);
                        filled += length;
                    }
                    data = joined;
                }
                break;
            case TRUNCATE:
                if (n == SYS_truncate) stat(first, &about); else fstat(a, &about);
                made.inode = about.st_ino;
                made.offset = about.st_size;
                break;
            case FLUSH:
                fstat(a, &about);
                made.inode = about.st_ino;
                break;
            }
            note(made, first, second, data);
        }
    }
    give();
    return result;
}

static void handle(int signal, siginfo_t *info, void *context) {
    (void)signal;
    greg_t *r = ((ucontext_t *)context)->uc_mcontext.gregs;
    int before = errno;
    r[REG_RAX] = act(info->si_syscall, r[REG_RDI], r[REG_RSI], r[REG_RDX], r[REG_R10], r[REG_R8],
                     r[REG_R9]);
    errno = before;
}

#define CALL(number) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1), \
                     BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP)
#define ARGUMENT(n) offsetof(struct seccomp_data, args[n])
#define WRITES (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC)

static int install(void) {
    uint64_t after = (uint64_t)(uintptr_t)shim_after;
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, instruction_pointer)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)after, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, instruction_pointer) + 4),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)(after >> 32), 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        CALL(SYS_creat), CALL(SYS_write), CALL(SYS_pwrite64), CALL(SYS_writev),
        CALL(SYS_ftruncate), CALL(SYS_truncate), CALL(SYS_fallocate), CALL(SYS_fsync),
        CALL(SYS_fdatasync), CALL(SYS_rename), CALL(SYS_renameat), CALL(SYS_renameat2),
        CALL(SYS_link), CALL(SYS_linkat), CALL(SYS_symlink), CALL(SYS_unlink), CALL(SYS_unlinkat),
        CALL(SYS_rmdir), CALL(SYS_mkdir), CALL(SYS_mkdirat),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 0, 4), /* opened to write */
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, ARGUMENT(2)),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, WRITES, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_open, 0, 4),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, ARGUMENT(1)),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, WRITES, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mmap, 0, 6), /* shared and writable */
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, ARGUMENT(2)),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, PROT_WRITE, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, ARGUMENT(3)),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, MAP_SHARED, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof filter[0], filter};
    struct sigaction action = {0};
    action.sa_sigaction = handle;
    action.sa_flags = SA_SIGINFO | SA_RESTART | SA_NODEFER;
    if (sigaction(SIGSYS, &action, NULL)) return errno;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) return errno;
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program))
        return errno;
    return 0;
}

/* Watch a folder; 0, or the error with which the system refused. The filter stays for good. */
int shim_watch(const char *folder, const char *journal_path) {
    snprintf(root, sizeof root, "%s", folder);
    root_length = strlen(root);
    if (journal_path[0]) {
        journal = open(journal_path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);
        if (journal < 0) return errno;
    }
    failing = -1;
    watching = 1;
    return install();
}

/* Fail the call with this number among those of some kinds, and all later ones if `on`. */
void shim_fail(long number, int error, int on, int kinds) {
    failing_error = error;
    failing_on = on;
    failing_kinds = kinds;
    count = 0;
    failing = number;
}

/* Go on without failures. */
void shim_mend(void) { failing = -1; }

/* The calls of the kinds so far. */
long shim_count(void) { return count; }

/* Put a line of the test's own into the journal. */
void shim_mark(const char *line) {
    struct record made = {0};
    made.what = MARK;
    take();
    note(made, line, "", NULL);
    give();
}
