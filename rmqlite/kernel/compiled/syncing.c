/* Syncs in a thread that does not need the interpreter for them.

   Python's thread calls sync_run(), which lets go of the interpreter and waits for descriptors;
   the loop hands them over with sync_put(), and is woken through an eventfd.  One sync at a time:
   no other descriptor is put before sync_take().  The semaphore and the eventfd order what the two
   threads write. */

#define _GNU_SOURCE
#include "records.h"
#include <errno.h>
#include <semaphore.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

static const char NAME[] = "rmqlite.kernel.compiled.syncs";

typedef struct {
    sem_t asked;
    int wake_fd;
    int fd; /* to sync; -1: none */
    int error;
    double seconds;
} Syncs;

static double now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void free_syncs(PyObject *capsule) {
    Syncs *syncs = PyCapsule_GetPointer(capsule, NAME);
    if (syncs == NULL) return;
    close(syncs->wake_fd);
    sem_destroy(&syncs->asked);
    PyMem_Free(syncs);
}

PyObject *sync_new(PyObject *self, PyObject *args) {
    (void)self, (void)args;
    Syncs *syncs = PyMem_Calloc(1, sizeof(Syncs));
    if (syncs == NULL) return PyErr_NoMemory();
    syncs->fd = -1;
    syncs->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (syncs->wake_fd < 0 || sem_init(&syncs->asked, 0, 0) < 0) {
        PyMem_Free(syncs);
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    PyObject *capsule = PyCapsule_New(syncs, NAME, free_syncs);
    if (capsule == NULL) return NULL;
    return Py_BuildValue("Ni", capsule, syncs->wake_fd);
}

PyObject *sync_put(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *capsule;
    int fd;
    if (!PyArg_ParseTuple(args, "Oi", &capsule, &fd)) return NULL;
    Syncs *syncs = PyCapsule_GetPointer(capsule, NAME);
    if (syncs == NULL) return NULL;
    if (fd >= 0) syncs->fd = fd;
    sem_post(&syncs->asked);
    Py_RETURN_NONE;
}

PyObject *sync_run(PyObject *self, PyObject *capsule) {
    (void)self;
    Syncs *syncs = PyCapsule_GetPointer(capsule, NAME);
    if (syncs == NULL) return NULL;
    Py_BEGIN_ALLOW_THREADS;
    for (;;) {
        while (sem_wait(&syncs->asked) < 0 && errno == EINTR) {}
        /* Each sync_put() is one turn: with nothing to sync, it asks to return. */
        if (syncs->fd < 0) break;
        double began_s = now_s();
        int result;
        do result = fdatasync(syncs->fd);
        while (result < 0 && errno == EINTR);
        syncs->error = result < 0 ? errno : 0;
        syncs->seconds = now_s() - began_s;
        syncs->fd = -1;
        /* The counter cannot overflow: each write of it is read before the next. */
        uint64_t one = 1;
        while (write(syncs->wake_fd, &one, sizeof one) < 0 && errno == EINTR) {}
    }
    Py_END_ALLOW_THREADS;
    Py_RETURN_NONE;
}

PyObject *sync_take(PyObject *self, PyObject *capsule) {
    (void)self;
    Syncs *syncs = PyCapsule_GetPointer(capsule, NAME);
    if (syncs == NULL) return NULL;
    uint64_t count;
    if (read(syncs->wake_fd, &count, sizeof count) != sizeof count) Py_RETURN_NONE;
    return Py_BuildValue("id", syncs->error, syncs->seconds);
}
