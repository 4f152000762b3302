/* The typemaps of bytes.i for Python. */

%fragment("bh_in", "header") %{
/* Reads Python's own encoding of a str. If the str has lone surrogates (bytes that are no UTF-8),
 * *owner gets a new reference. */
static int bh_in(PyObject *value, bh_bytes *bytes, PyObject **owner)
{
    char *data = NULL;
    Py_ssize_t size = 0;
    if (PyUnicode_Check(value)) {
        bytes->data = PyUnicode_AsUTF8AndSize(value, &size);
        bytes->size = (size_t)size;
        if (bytes->data)
            return 0;
        if (!PyErr_ExceptionMatches(PyExc_UnicodeEncodeError))
            return -1;
        PyErr_Clear();
        *owner = PyUnicode_AsEncodedString(value, "utf-8", "surrogateescape");
        if (!*owner && PyErr_ExceptionMatches(PyExc_UnicodeEncodeError)) {
            PyErr_Clear(); /* the core refuses these bytes if the text must be UTF-8 */
            *owner = PyUnicode_AsEncodedString(value, "utf-8", "surrogatepass");
        }
        value = *owner;
        if (!value)
            return -1;
    }
    if (PyBytes_AsStringAndSize(value, &data, &size))
        return -1;
    bytes->data = data;
    bytes->size = (size_t)size;
    return 0;
}
%}
%typemap(in, fragment="bh_in") bh_bytes (PyObject *owner = NULL) {
    if (bh_in($input, &$1, &owner))
        SWIG_fail;
}
%typemap(freearg) bh_bytes "Py_XDECREF(owner$argnum);"
%typemap(out) bh_bytes "$result = PyUnicode_DecodeUTF8($1.data, (Py_ssize_t)$1.size, \"surrogateescape\");"
%typemap(out) binary "$result = PyBytes_FromStringAndSize($1.data, (Py_ssize_t)$1.size);"

/* The fields of a struct, for %record. */
%fragment("bh_put", "header") %{
static PyObject *bh_text_field(bh_bytes text)
{
    return PyUnicode_DecodeUTF8(text.data ? text.data : "", (Py_ssize_t)text.size, "surrogateescape");
}
static PyObject *bh_int_field(int64_t number)
{
    return PyLong_FromLongLong(number);
}
#define bh_put(value) \
    _Generic((value), bh_bytes: bh_text_field, double: PyFloat_FromDouble, default: bh_int_field)(value)
#define bh_record(type, value) bh_record_##type(value)
#define BH_PUT(field) PyTuple_SetItem(record, at++, bh_put(it->field));
#define BH_PUT_TEXT(field) PyTuple_SetItem(record, at++, bh_put(bh_str(it->field))); /* a string in the struct */
#define BH_PUT_EACH(size, value) \
    do { \
        PyObject *each = PyTuple_New((Py_ssize_t)it->size); \
        for (size_t i = 0; each && i < it->size; i++) \
            PyTuple_SetItem(each, (Py_ssize_t)i, value); \
        PyTuple_SetItem(record, at++, each); \
    } while (0);
%}
%define %record(type, count, fields)
%fragment("bh_record_" "type", "header", fragment="bh_put") {
static PyObject *bh_record_##type(const type *it)
{
    Py_ssize_t at = 0;
    PyObject *record = PyTuple_New(count);
    if (!record)
        return NULL;
    fields
    if (PyErr_Occurred()) { /* a field could not be made */
        Py_DECREF(record);
        return NULL;
    }
    return record;
}
}
%typemap(in, numinputs=0, fragment="bh_record_" "type") type *out (type it) "$1 = &it;"
%typemap(argout) type *out {
    Py_XDECREF($result);
    $result = bh_record_##type($1);
    if (!$result)
        SWIG_fail;
}
%enddef

/* Returns the decisions of a plan without the content of its copy, as a tuple: action, attempts,
 * delay, rung, reason, id, exchange, routing_key, mandatory. */
%{
typedef const bh_plan *described_plan;
%}
%fragment("bh_described", "header") %{
static PyObject *bh_text_out(bh_bytes text)
{
    return PyUnicode_DecodeUTF8(text.data, (Py_ssize_t)text.size, "surrogateescape");
}

static PyObject *bh_described(const bh_plan *plan)
{
    Py_ssize_t at = 0;
    PyObject *all = PyTuple_New(9);
    if (!all)
        return NULL;
    bh_planned planned;
    bh_copy copy;
    bh_plan_read(plan, &planned);
    bh_plan_copy(plan, &copy);
    PyTuple_SetItem(all, at++, PyLong_FromLong(planned.action));
    PyTuple_SetItem(all, at++, PyLong_FromLongLong(planned.attempts));
    PyTuple_SetItem(all, at++, PyLong_FromLongLong(planned.delay_ms));
    PyTuple_SetItem(all, at++, PyLong_FromLongLong(copy.rung_ms));
    PyTuple_SetItem(all, at++, bh_text_out(planned.reason));
    PyTuple_SetItem(all, at++, bh_text_out(copy.id));
    PyTuple_SetItem(all, at++, bh_text_out(copy.exchange));
    PyTuple_SetItem(all, at++, bh_text_out(copy.routing_key));
    PyTuple_SetItem(all, at++, PyBool_FromLong(copy.mandatory));
    if (PyErr_Occurred()) { /* an item could not be made */
        Py_DECREF(all);
        return NULL;
    }
    return all;
}
%}
%typemap(out, fragment="bh_described") described_plan "$result = bh_described($1);"
%extend bh_plan {
    described_plan described() {
        return $self;
    }
}
