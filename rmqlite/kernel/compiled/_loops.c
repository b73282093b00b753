/* The loops over the records of an append, a batch, a delivery, a pull and a whole log, those over a
   client's messages and over RocketMQ's frames, and the thread that syncs.

   A plain Python function of the same name has the signature of each, and says what it does; see
   in_c() in __init__.py.  A function that finds anything out of the ordinary returns None, and has
   changed nothing: then the plain one does the work, and raises the errors.

   All that comes in may be hostile: a number that is read from a buffer is checked against the
   length of the buffer before it is used as a place. */

#include "records.h"

enum { INTERFACE = 23 }; /* see __init__.py */

PyObject *crc32_of_zlib;

static PyMethodDef METHODS[] = {
    {"batch_spans", batch_spans, METH_VARARGS, NULL},
    {"pack_records", pack_records, METH_O, NULL},
    {"pack_drafts", pack_drafts, METH_VARARGS, NULL},
    {"pack_deliveries", pack_deliveries, METH_VARARGS, NULL},
    {"place", place, METH_VARARGS, NULL},
    {"enter_keys", enter_keys, METH_VARARGS, NULL},
    {"read_frames", read_frames, METH_VARARGS, NULL},
    {"make_draft", make_draft, METH_VARARGS, NULL},
    {"write_messages", write_messages, METH_O, NULL},
    {"read_messages", read_messages, METH_VARARGS, NULL},
    {"copied", copied, METH_VARARGS, NULL},
    {"log_reads", log_reads, METH_VARARGS, NULL},
    {"whole_records", whole_records, METH_VARARGS, NULL},
    {"record_starts", record_starts, METH_VARARGS, NULL},
    {"record_parts", record_parts, METH_VARARGS, NULL},
    {"topic_texts", topic_texts, METH_VARARGS, NULL},
    {"plain_run", plain_run, METH_VARARGS, NULL},
    {"whole_length", whole_length, METH_VARARGS, NULL},
    {"hashed_keys", hashed_keys, METH_VARARGS, NULL},
    {"sync_new", sync_new, METH_NOARGS, NULL},
    {"sync_put", sync_put, METH_VARARGS, NULL},
    {"sync_run", sync_run, METH_O, NULL},
    {"sync_take", sync_take, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef MODULE = {
    PyModuleDef_HEAD_INIT, .m_name = "rmqlite.kernel.compiled._loops", .m_size = -1, .m_methods = METHODS};

PyMODINIT_FUNC PyInit__loops(void) {
    PyObject *zlib = PyImport_ImportModule("zlib");
    if (zlib == NULL) return NULL;
    crc32_of_zlib = PyObject_GetAttrString(zlib, "crc32");
    Py_DECREF(zlib);
    PyObject *module = crc32_of_zlib == NULL ? NULL : PyModule_Create(&MODULE);
    if (module != NULL && PyModule_AddIntConstant(module, "INTERFACE", INTERFACE) < 0)
        Py_CLEAR(module);
    return module;
}
