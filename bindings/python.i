/*
 * Python's properties and headers, into a delivery: a call for each value would take longer than
 * all else that an adapter does with a message. This file reads the types that most headers have.
 * It calls `other` of _amqp.py with each value of a rarer type.
 */
%{
typedef struct bh_level_of {
    PyObject *container; /* a dict, a list, or an iterator of pairs of name and value */
    Py_ssize_t at;
} bh_level_of;

/* The next name and value of a container, both new references; the name of a list's items is NULL.
 * 0 at its end, -1 with an exception. */
static int bh_next(bh_level_of *level, PyObject **name, PyObject **value)
{
    *name = *value = NULL;
    if (PyDict_CheckExact(level->container)) {
        if (!PyDict_Next(level->container, &level->at, name, value))
            return 0;
    } else if (PyList_CheckExact(level->container)) {
        if (level->at >= PyList_Size(level->container))
            return 0;
        *value = PyList_GetItem(level->container, level->at++);
    } else {
        PyObject *pair = PyIter_Next(level->container);
        if (!pair)
            return PyErr_Occurred() ? -1 : 0;
        Py_ssize_t size = PySequence_Size(pair);
        if (size == 2) {
            *name = PySequence_GetItem(pair, 0);
            *value = PySequence_GetItem(pair, 1);
        } else if (size >= 0) {
            PyErr_SetString(PyExc_TypeError, "headers are no pairs of name and value");
        }
        Py_DecRef(pair);
        return PyErr_Occurred() ? -1 : 1;
    }
    Py_IncRef(*name);
    Py_IncRef(*value);
    return 1;
}

/* Pushes a value; a container is begun, and the caller walks it. `other` gives the status, and an
 * iterator or None. */
static bh_status bh_push(bh_delivery *delivery, bh_bytes name, PyObject *value, PyObject **inside)
{
    if (PyUnicode_CheckExact(value)) {
        PyObject *owner = NULL;
        bh_bytes text;
        if (bh_in(value, &text, &owner))
            return BH_ERR_ARGUMENT;
        bh_status status = bh_delivery_push(delivery,
                                            &(bh_value){.type = BH_TYPE_STRING, .name = name, .string = text});
        Py_DecRef(owner);
        return status;
    }
    if (value == Py_None)
        return bh_delivery_push(delivery, &(bh_value){.type = BH_TYPE_VOID, .name = name});
    if (PyBool_Check(value))
        return bh_delivery_push(delivery,
                                &(bh_value){.type = BH_TYPE_BOOLEAN, .name = name, .integer = value == Py_True});
    if (PyDict_CheckExact(value) || PyList_CheckExact(value)) {
        *inside = value;
        Py_IncRef(value);
        bh_type type = PyDict_CheckExact(value) ? BH_TYPE_TABLE : BH_TYPE_ARRAY;
        return bh_delivery_push(delivery, &(bh_value){.type = type, .name = name});
    }
    int overflow = 1;
    int64_t number = PyLong_Check(value) ? PyLong_AsLongLongAndOverflow(value, &overflow) : 0;
    if (overflow)
        return BH_STATUS_LAST;
    int is_short = PyLong_CheckExact(value) && number >= INT32_MIN && number <= INT32_MAX;
    bh_type type = is_short ? BH_TYPE_INT32 : BH_TYPE_INT64; /* a class of a client's own is its 64-bit integer */
    return bh_delivery_push(delivery, &(bh_value){.type = type, .name = name, .integer = number});
}

static bh_status bh_push_other(PyObject *handle, PyObject *name, PyObject *value, PyObject *other, PyObject **inside)
{
    long status = BH_ERR_ARGUMENT;
    PyObject *answer = PyObject_CallFunction(other, "OOO", handle, name ? name : Py_None, value);
    if (answer && PyArg_ParseTuple(answer, "Ol", inside, &status) && *inside != Py_None)
        Py_IncRef(*inside);
    else
        *inside = NULL;
    Py_DecRef(answer);
    return (bh_status)status;
}

static bh_status bh_push_next(PyObject *handle, bh_delivery *delivery, PyObject *name, PyObject *value, PyObject *other,
                              PyObject **inside)
{
    PyObject *owner = NULL;
    bh_bytes text = bh_str("");
    if (name && bh_in(name, &text, &owner))
        return BH_ERR_ARGUMENT;
    bh_status status = bh_push(delivery, text, value, inside);
    Py_DecRef(owner);
    return status == BH_STATUS_LAST ? bh_push_other(handle, name, value, other, inside) : status;
}

static PyObject *push_all(bh_delivery *delivery, PyObject *handle, PyObject *headers, PyObject *other)
{
    size_t depth = 1, room = 8;
    bh_level_of some[8] = {{headers, 0}}, *levels = some;
    bh_status status = BH_OK;
    Py_IncRef(headers);
    while (depth > 0 && status == BH_OK && !PyErr_Occurred()) {
        PyObject *name, *value, *inside = NULL;
        int found = bh_next(&levels[depth - 1], &name, &value);
        if (found > 0)
            status = bh_push_next(handle, delivery, name, value, other, &inside);
        else if (found == 0 && --depth > 0)
            status = bh_delivery_end(delivery);
        if (found == 0)
            Py_DecRef(levels[depth].container);
        Py_DecRef(name);
        Py_DecRef(value);
        if (!inside)
            continue;
        if (depth == room) {
            bh_level_of *more = malloc(2 * room * sizeof *more);
            if (!more) {
                status = BH_ERR_NO_MEMORY;
                Py_DecRef(inside);
                break;
            }
            memcpy(more, levels, depth * sizeof *more);
            if (levels != some)
                free(levels);
            levels = more;
            room *= 2;
        }
        levels[depth++] = (bh_level_of){inside, 0};
    }
    while (depth > 0)
        Py_DecRef(levels[--depth].container);
    if (levels != some)
        free(levels);
    return PyErr_Occurred() ? NULL : PyLong_FromLong(status);
}

/*
 * Sets the properties that an object has as attributes; gives the status. `names` are tuples of a
 * property's name, its number, and whether it is a number. None, a value in `blank`, or no such
 * attribute is absent.
 */
static PyObject *set_properties(bh_delivery *delivery, PyObject *handle, PyObject *properties, PyObject *names,
                                PyObject *blank, PyObject *other)
{
    long status = BH_OK;
    for (Py_ssize_t i = 0; status == BH_OK && i < PyTuple_Size(names) && !PyErr_Occurred(); i++) {
        PyObject *name, *value;
        int property, is_number;
        if (!PyArg_ParseTuple(PyTuple_GetItem(names, i), "Oip", &name, &property, &is_number))
            break;
        value = PyObject_GetAttr(properties, name);
        if (!value && PyErr_ExceptionMatches(PyExc_AttributeError))
            PyErr_Clear();
        if (!value || value == Py_None || PySequence_Contains(blank, value)) {
            Py_DecRef(value);
            continue;
        }
        int overflow = 1;
        int64_t number = is_number && PyLong_CheckExact(value) ? PyLong_AsLongLongAndOverflow(value, &overflow) : 0;
        PyObject *owner = NULL;
        bh_bytes text;
        if (!overflow) {
            status = bh_delivery_set_number(delivery, (bh_property)property, number);
        } else if (!is_number && PyUnicode_CheckExact(value)) {
            if (!bh_in(value, &text, &owner))
                status = bh_delivery_set_property(delivery, (bh_property)property, text);
        } else {
            PyObject *answer = PyObject_CallFunction(other, "OOiO", handle, name, property, value);
            status = answer ? PyLong_AsLong(answer) : BH_ERR_ARGUMENT;
            Py_DecRef(answer);
        }
        Py_DecRef(owner);
        Py_DecRef(value);
    }
    return PyErr_Occurred() ? NULL : PyLong_FromLong(status);
}
%}

PyObject *set_properties(bh_delivery *delivery, PyObject *handle, PyObject *properties, PyObject *names,
                         PyObject *blank, PyObject *other);

/* Pushes a dict, or an iterator of pairs; gives the status. The handle is the delivery, for
 * `other`. */
PyObject *push_all(bh_delivery *delivery, PyObject *handle, PyObject *headers, PyObject *other);
