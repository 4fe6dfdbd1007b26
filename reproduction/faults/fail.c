/* Fails the n-th write, sync or rename of files below a folder: loaded before a program by LD_PRELOAD.
   FAULT_STATE names a file of five longs, shared by the program and all that it starts:
   kinds (1 write, 2 sync, 4 rename), which call fails, calls so far, failures so far, whether all later ones fail. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum { WRITE = 1, SYNC = 2, RENAME = 4 };
struct state { atomic_long kinds, at, seen, failed, rest; };
static struct state *state;
static char root[PATH_MAX];
static size_t root_length;

__attribute__((constructor)) static void start(void)
{
    const char *name = getenv("FAULT_STATE"), *folder = getenv("FAULT_ROOT");
    if (!name || !folder || !realpath(folder, root)) return;
    root_length = strlen(root);
    int file = open(name, O_RDWR | O_CLOEXEC);
    if (file < 0) return;
    void *found = mmap(NULL, sizeof *state, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (found != MAP_FAILED) state = found;
}

static int below(const char *path)
{
    return !strncmp(path, root, root_length) && (path[root_length] == '/' || !path[root_length]);
}

static int fails(int kind)
{
    if (!(state->kinds & kind)) return 0;
    long number = atomic_fetch_add(&state->seen, 1) + 1;
    if (number != state->at && !(state->rest && number > state->at)) return 0;
    atomic_fetch_add(&state->failed, 1);
    errno = kind == SYNC ? EIO : ENOSPC;
    return 1;
}

static int file_fails(int kind, int file)
{
    if (!state || !(state->kinds & kind)) return 0;
    char name[64], path[PATH_MAX];
    snprintf(name, sizeof name, "/proc/self/fd/%d", file);
    ssize_t length = readlink(name, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return below(path) && fails(kind);
}

static int path_fails(int kind, const char *path)
{
    char whole[PATH_MAX + 1];
    if (!state || !(state->kinds & kind)) return 0;
    if (path[0] != '/') {
        if (!getcwd(whole, PATH_MAX) || strlen(whole) + strlen(path) + 2 > PATH_MAX) return 0;
        strcat(strcat(whole, "/"), path);
        path = whole;
    }
    return below(path) && fails(kind);
}

#define REAL(name) static __typeof__(&name) real; if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

ssize_t write(int file, const void *data, size_t length)
{
    REAL(write);
    if (file_fails(WRITE, file)) {
        if (length > 1 && real(file, data, length / 2) < 0) return -1; /* a disk is full in the middle */
        errno = ENOSPC;
        return -1;
    }
    return real(file, data, length);
}
ssize_t pwrite(int file, const void *data, size_t length, off_t at)
{ REAL(pwrite); return file_fails(WRITE, file) ? -1 : real(file, data, length, at); }
ssize_t pwrite64(int file, const void *data, size_t length, off64_t at)
{ REAL(pwrite64); return file_fails(WRITE, file) ? -1 : real(file, data, length, at); }
ssize_t writev(int file, const struct iovec *parts, int count)
{ REAL(writev); return file_fails(WRITE, file) ? -1 : real(file, parts, count); }
size_t fwrite(const void *data, size_t size, size_t count, FILE *file)
{ REAL(fwrite); return file_fails(WRITE, fileno(file)) ? 0 : real(data, size, count, file); }
ssize_t sendfile(int to, int from, off_t *at, size_t count);
ssize_t sendfile(int to, int from, off_t *at, size_t count)
{ REAL(sendfile); return file_fails(WRITE, to) ? -1 : real(to, from, at, count); }
ssize_t sendfile64(int to, int from, off64_t *at, size_t count);
ssize_t sendfile64(int to, int from, off64_t *at, size_t count)
{ REAL(sendfile64); return file_fails(WRITE, to) ? -1 : real(to, from, at, count); }
ssize_t copy_file_range(int from, off64_t *at, int to, off64_t *there, size_t count, unsigned flags)
{ REAL(copy_file_range); return file_fails(WRITE, to) ? -1 : real(from, at, to, there, count, flags); }
int ftruncate(int file, off_t length)
{ REAL(ftruncate); return length && file_fails(WRITE, file) ? -1 : real(file, length); }
int ftruncate64(int file, off64_t length)
{ REAL(ftruncate64); return length && file_fails(WRITE, file) ? -1 : real(file, length); }
int posix_fallocate(int file, off_t at, off_t length)
{ REAL(posix_fallocate); return file_fails(WRITE, file) ? ENOSPC : real(file, at, length); }
int fsync(int file) { REAL(fsync); return file_fails(SYNC, file) ? -1 : real(file); }
int fdatasync(int file) { REAL(fdatasync); return file_fails(SYNC, file) ? -1 : real(file); }
int rename(const char *from, const char *to) { REAL(rename); return path_fails(RENAME, to) ? -1 : real(from, to); }
int renameat(int a, const char *from, int b, const char *to)
{ REAL(renameat); return path_fails(RENAME, to) ? -1 : real(a, from, b, to); }
int link(const char *from, const char *to) { REAL(link); return path_fails(RENAME, to) ? -1 : real(from, to); }
