/*
 * Python's properties and headers, into a delivery and out to a copy: a call for each value would take longer than all else that an
 * adapter does with a message. What is here are the types that most headers have; the rarer ones are _amqp.py's, as
 * `other`, which is called with each.
 */
%{
typedef struct bh_level_of {
    PyObject *container; /* a dict, a list, or an iterator of pairs of name and value */
    Py_ssize_t at;
} bh_level_of;

/* The next name and value of a container, both new references; the name of a list's items is NULL. 0 at its end, -1 with
 * an exception. */
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

/* What a value is pushed as; a container is begun, and to be walked. `other` gives the status, and an iterator or None. */
static bh_status bh_push(bh_delivery *delivery, bh_bytes name, PyObject *value, PyObject **inside)
{
    if (PyUnicode_CheckExact(value)) {
        PyObject *owner = NULL;
        bh_bytes text;
        if (bh_in(value, &text, &owner))
            return BH_ERR_ARGUMENT;
        bh_status status = bh_delivery_push_string(delivery, name, BH_TYPE_STRING, text);
        Py_DecRef(owner);
        return status;
    }
    if (value == Py_None)
        return bh_delivery_push_void(delivery, name);
    if (PyBool_Check(value))
        return bh_delivery_push_int(delivery, name, BH_TYPE_BOOLEAN, value == Py_True);
    if (PyDict_CheckExact(value) || PyList_CheckExact(value)) {
        *inside = value;
        Py_IncRef(value);
        return PyDict_CheckExact(value) ? bh_delivery_begin_table(delivery, name) : bh_delivery_begin_array(delivery, name);
    }
    int overflow = 1;
    int64_t number = PyLong_Check(value) ? PyLong_AsLongLongAndOverflow(value, &overflow) : 0;
    return overflow ? BH_STATUS_LAST : bh_delivery_push_int(delivery, name, BH_TYPE_INT64, number);
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
 * Sets the properties that an object has as attributes; gives the status. `names` are tuples of a property's name, its
 * number, and whether it is a number; None, or no such attribute, is absent.
 */
static PyObject *set_properties(bh_delivery *delivery, PyObject *handle, PyObject *properties, PyObject *names,
                                PyObject *other)
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
        if (!value || value == Py_None) {
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

/* --- Out ------------------------------------------------------------------------------------------------------------- */

typedef struct bh_buffer {
    char *data;
    size_t size, room;
} bh_buffer;

static int bh_put(bh_buffer *buffer, const void *data, size_t size)
{
    if (buffer->room - buffer->size < size) {
        size_t room = 2 * (buffer->size + size) + 512;
        char *more = realloc(buffer->data, room);
        if (!more) {
            PyErr_NoMemory();
            return -1;
        }
        buffer->data = more;
        buffer->room = room;
    }
    if (size)
        memcpy(buffer->data + buffer->size, data, size);
    buffer->size += size;
    return 0;
}

static void bh_set_number(char *at, uint64_t number, int bytes)
{
    for (int i = 0; i < bytes; i++)
        at[i] = (char)(number >> 8 * (bytes - 1 - i) & 0xff);
}

/* A tag, and a number of so many bytes. */
static int bh_put_number(bh_buffer *buffer, char tag, uint64_t number, int bytes)
{
    char data[9] = {tag};
    bh_set_number(data + 1, number, bytes);
    return bh_put(buffer, data, 1 + (size_t)bytes);
}

static int bh_put_text(bh_buffer *buffer, char tag, bh_bytes text)
{
    return bh_put_number(buffer, tag, text.size, 4) || bh_put(buffer, text.data, text.size) ? -1 : 0;
}

static int bh_put_name(bh_buffer *buffer, bh_bytes name)
{
    unsigned char size = (unsigned char)name.size;
    if (name.size > 255) {
        PyErr_SetString(PyExc_OverflowError, "a name or a property has more than 255 bytes");
        return -1;
    }
    return bh_put(buffer, &size, 1) || bh_put(buffer, name.data, name.size) ? -1 : 0;
}

static int bh_put_value(bh_buffer *buffer, PyObject *value, PyObject *of_bytes, PyObject *other);

/* Whose length was left out at that place. */
static void bh_end(bh_buffer *buffer, size_t start)
{
    bh_set_number(buffer->data + start, buffer->size - start - 4, 4);
}

/* A table but for its tag, of those names that the plan keeps, if there is one; and the plan's own. */
static int bh_put_table(bh_buffer *buffer, const bh_plan *plan, PyObject *table, PyObject *of_bytes, PyObject *other);

static int bh_put_list(bh_buffer *buffer, PyObject *list, PyObject *of_bytes, PyObject *other)
{
    size_t start = buffer->size;
    int failed = bh_put(buffer, "\0\0\0\0", 4);
    for (Py_ssize_t i = 0; !failed && i < PyList_Size(list); i++)
        failed = bh_put_value(buffer, PyList_GetItem(list, i), of_bytes, other);
    if (!failed)
        bh_end(buffer, start);
    return failed;
}

static int bh_put_inside(bh_buffer *buffer, PyObject *value, PyObject *of_bytes, PyObject *other)
{
    int is_table = PyDict_Check(value);
    if (Py_EnterRecursiveCall(" while headers were encoded"))
        return -1;
    int failed = bh_put(buffer, is_table ? "F" : "A", 1) || (is_table ? bh_put_table(buffer, NULL, value, of_bytes, other)
                                                                      : bh_put_list(buffer, value, of_bytes, other));
    Py_LeaveRecursiveCall();
    return failed ? -1 : 0;
}

static int bh_put_other(bh_buffer *buffer, PyObject *value, PyObject *of_bytes, PyObject *other)
{
    char *data;
    Py_ssize_t size;
    PyObject *encoded = PyObject_CallFunction(other, "OO", value, of_bytes);
    int failed = !encoded || PyBytes_AsStringAndSize(encoded, &data, &size) || bh_put(buffer, data, (size_t)size);
    Py_DecRef(encoded);
    return failed ? -1 : 0;
}

static int bh_put_value(bh_buffer *buffer, PyObject *value, PyObject *of_bytes, PyObject *other)
{
    if (PyUnicode_CheckExact(value)) {
        PyObject *owner = NULL;
        bh_bytes text;
        int failed = bh_in(value, &text, &owner) || bh_put_text(buffer, 'S', text);
        Py_DecRef(owner);
        return failed ? -1 : 0;
    }
    if (value == Py_None)
        return bh_put(buffer, "V", 1);
    if (PyBool_Check(value))
        return bh_put(buffer, value == Py_True ? "t\1" : "t\0", 2);
    if (PyDict_Check(value) || PyList_Check(value))
        return bh_put_inside(buffer, value, of_bytes, other);
    int overflow = 1;
    int64_t number = PyLong_Check(value) ? PyLong_AsLongLongAndOverflow(value, &overflow) : 0;
    if (overflow)
        return bh_put_other(buffer, value, of_bytes, other);
    int is_short = PyLong_CheckExact(value) && number >= INT32_MIN && number <= INT32_MAX;
    return is_short ? bh_put_number(buffer, 'I', (uint64_t)number, 4) : bh_put_number(buffer, 'l', (uint64_t)number, 8);
}

/* A header of the plan's own. A void stands for the value of the original's header that it names. */
static int bh_put_own(bh_buffer *buffer, const bh_plan *plan, size_t i, PyObject *headers, PyObject *of_bytes,
                      PyObject *other)
{
    bh_type type = bh_plan_header_type(plan, i);
    bh_bytes text = bh_plan_header_string(plan, i);
    char start[5] = {'A'};
    if (bh_put_name(buffer, bh_plan_header_name(plan, i)))
        return -1;
    if (type == BH_TYPE_INT64)
        return bh_put_number(buffer, 'l', (uint64_t)bh_plan_header_int(plan, i), 8);
    if (type == BH_TYPE_STRING)
        return bh_put_text(buffer, 'S', text);
    if (type == BH_TYPE_ARRAY) {
        bh_set_number(start + 1, text.size + 5, 4);
        return bh_put(buffer, start, sizeof start) || bh_put_text(buffer, 'S', text) ? -1 : 0;
    }
    PyObject *name = bh_text_out(bh_plan_header_source(plan, i));
    PyObject *value = name ? PyObject_GetItem(headers, name) : NULL;
    int failed = !value || bh_put_value(buffer, value, of_bytes, other);
    Py_DecRef(name);
    Py_DecRef(value);
    return failed ? -1 : 0;
}

static int bh_put_table(bh_buffer *buffer, const bh_plan *plan, PyObject *table, PyObject *of_bytes, PyObject *other)
{
    PyObject *key, *value;
    Py_ssize_t at = 0;
    size_t start = buffer->size;
    int failed = bh_put(buffer, "\0\0\0\0", 4);
    while (!failed && PyDict_Next(table, &at, &key, &value)) {
        PyObject *owner = NULL;
        bh_bytes name;
        failed = bh_in(key, &name, &owner);
        if (!failed && (!plan || bh_plan_keeps_header(plan, name)))
            failed = bh_put_name(buffer, name) || bh_put_value(buffer, value, of_bytes, other);
        Py_DecRef(owner);
    }
    for (size_t i = 0; plan && !failed && i < bh_plan_header_count(plan); i++)
        failed = bh_put_own(buffer, plan, i, table, of_bytes, other);
    if (!failed)
        bh_end(buffer, start);
    return failed ? -1 : 0;
}

static PyObject *encoded_table(const bh_plan *plan, PyObject *table, PyObject *of_bytes, PyObject *other)
{
    bh_buffer buffer = {NULL, 0, 0};
    PyObject *encoded = NULL;
    if (!PyDict_Check(table))
        PyErr_SetString(PyExc_TypeError, "headers are no dict");
    else if (!bh_put_table(&buffer, plan, table, of_bytes, other))
        encoded = PyBytes_FromStringAndSize(buffer.data, (Py_ssize_t)buffer.size);
    free(buffer.data);
    return encoded;
}


/* A property that is a number: an octet, or a moment, which `other` has in seconds. */
static int bh_put_number_property(bh_buffer *buffer, int property, PyObject *value, PyObject *other)
{
    char data[8];
    int overflow = 0, size = property == BH_PROPERTY_PRIORITY ? 1 : 8;
    PyObject *seconds = PyLong_Check(value) || size == 1 ? NULL : PyObject_CallFunction(other, "O", value);
    int64_t number = PyErr_Occurred() ? -1 : PyLong_AsLongLongAndOverflow(seconds ? seconds : value, &overflow);
    Py_DecRef(seconds);
    if (PyErr_Occurred())
        return -1;
    if (overflow || number < 0 || (size == 1 && number > 255)) {
        PyErr_SetString(PyExc_ValueError, "a property is beyond its type's range");
        return -1;
    }
    bh_set_number(data, (uint64_t)number, size);
    return bh_put(buffer, data, (size_t)size);
}

/* One that the original has; 0 where it has none, 1 where it has, -1 with an exception. */
static int bh_put_property(bh_buffer *buffer, PyObject *original, PyObject *name, int property, int is_number,
                           PyObject *blank, PyObject *other)
{
    PyObject *owner = NULL, *value = PyObject_GetAttr(original, name);
    bh_bytes text;
    int failed, is_blank = value && value != Py_None ? PySequence_Contains(blank, value) : 1;
    if (!value || is_blank) {
        Py_DecRef(value);
        return PyErr_Occurred() ? -1 : 0;
    }
    if (is_number)
        failed = bh_put_number_property(buffer, property, value, other);
    else
        failed = bh_in(value, &text, &owner) || bh_put_name(buffer, text);
    Py_DecRef(owner);
    Py_DecRef(value);
    return failed ? -1 : 1;
}

/*
 * A copy's content header; its delivery mode is 2. `kept` has the bits of the original's properties that it keeps, `names`
 * are as set_properties', without the delivery mode, `blank` stands for absent besides None, and `other` gives the
 * seconds of a moment.
 */
static PyObject *content_header(PyObject *original, PyObject *size, int kept, bh_bytes expiration, PyObject *table,
                                PyObject *names, PyObject *blank, PyObject *other)
{
    bh_buffer buffer = {NULL, 0, 0};
    PyObject *encoded = NULL;
    char *data;
    Py_ssize_t count;
    unsigned flags = 1U << (15 - BH_PROPERTY_HEADERS) | 1U << (15 - BH_PROPERTY_DELIVERY_MODE);
    unsigned long long bytes = PyLong_AsUnsignedLongLong(size);
    int has_headers = 0;
    int failed = PyErr_Occurred() || bh_put(&buffer, "\0\074\0\0\0\0\0\0\0\0\0\0\0\0", 14) ||
                 PyBytes_AsStringAndSize(table, &data, &count);
    for (Py_ssize_t i = 0; !failed && i <= PyTuple_Size(names); i++) {
        PyObject *name = NULL;
        int property = BH_PROPERTY_LAST, is_number = 0, found = 0;
        if (i < PyTuple_Size(names) && !PyArg_ParseTuple(PyTuple_GetItem(names, i), "Oip", &name, &property, &is_number))
            break;
        if (property > BH_PROPERTY_HEADERS && !has_headers) {
            has_headers = 1;
            failed = bh_put(&buffer, data, (size_t)count) || bh_put(&buffer, "\2", 1);
        }
        if (failed || !name)
            continue;
        if (property == BH_PROPERTY_EXPIRATION)
            found = expiration.size ? (bh_put_name(&buffer, expiration) ? -1 : 1) : 0;
        else if (kept >> property & 1)
            found = bh_put_property(&buffer, original, name, property, is_number, blank, other);
        failed = found < 0;
        if (found > 0)
            flags |= 1U << (15 - property);
    }
    if (!failed && !PyErr_Occurred()) {
        bh_set_number(buffer.data + 4, bytes, 8);
        bh_set_number(buffer.data + 12, flags, 2);
        encoded = PyBytes_FromStringAndSize(buffer.data, (Py_ssize_t)buffer.size);
    }
    free(buffer.data);
    return encoded;
}
%}

PyObject *set_properties(bh_delivery *delivery, PyObject *handle, PyObject *properties, PyObject *names, PyObject *other);

/* Pushes a dict, or an iterator of pairs; gives the status. The handle is the delivery, for `other`. */
PyObject *push_all(bh_delivery *delivery, PyObject *handle, PyObject *headers, PyObject *other);

/* A dict as it is on the wire; with a plan, a copy's headers: those of the original that it keeps, and its own. */
PyObject *encoded_table(const bh_plan *plan, PyObject *headers, PyObject *of_bytes, PyObject *other);

PyObject *content_header(PyObject *original, PyObject *size, int kept, bh_bytes expiration, PyObject *table, PyObject *names,
                         PyObject *blank, PyObject *other);
