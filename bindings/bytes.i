/*
 * The only typemaps.
 *
 * bh_bytes, in: text or bytes, a zero byte included, read during the call. Out: text, copied. Bytes
 * that are no UTF-8 come out in a form that goes in again as the same bytes. `binary` is a bh_bytes
 * that comes out as bytes.
 *
 * T **out: no argument; the result is the status and the object, or the status and nothing if the
 * call failed.
 *
 * int64_t *number: no argument; the result is the status and the number. Node gets one value,
 * because an array costs more than the call: the number, or the status, which is below 0.
 * int64_t no_wait: no argument; 0, so that nothing behind a binding blocks.
 *
 * type *out, for a struct of the core: no argument. The call returns the struct's fields in order,
 * as a tuple (Python) or an Array (Ruby, Node). The function's status is dropped: a failure gives a
 * zeroed struct.
 *
 *     %record(bh_death, 4, BH_PUT(queue) BH_PUT(reason) BH_PUT(count)
 *             BH_PUT_EACH(routing_key_count, bh_put(it->routing_keys[i])))
 *     void bh_history_death(const bh_history *self, size_t index, bh_death *out);
 *
 * `it` is the struct, the number counts its fields, and bh_put converts a number or a bh_bytes. The
 * struct above is also bh_record(bh_death, pointer), for an array of structs within another struct.
 */
%{
typedef bh_bytes binary;
%}

/* Makes an event another one, of what most have: an error and its class that are empty, and a
 * duration below 0, are left out. */
%{
static bh_status bh_fill(bh_event *event, bh_event_kind kind, bh_bytes queue, bh_bytes error_class, bh_bytes error,
                         int64_t duration_us)
{
    bh_status status = bh_event_begin(event, kind);
    if (status == BH_OK)
        status = bh_event_set_string(event, BH_FIELD_QUEUE, queue);
    if (status == BH_OK && error_class.size)
        status = bh_event_set_string(event, BH_FIELD_ERROR_CLASS, error_class);
    if (status == BH_OK && error.size)
        status = bh_event_set_string(event, BH_FIELD_ERROR, error);
    if (status == BH_OK && duration_us >= 0)
        status = bh_event_set_int(event, BH_FIELD_DURATION, duration_us);
    return status;
}
%}

#if defined(SWIGPYTHON)
%include "bytes_python.i"
#elif defined(SWIGRUBY)
%include "bytes_ruby.i"
#elif defined(SWIGJAVASCRIPT)
%include "bytes_node.i"
#endif

/* Sets an event from a message and its handler, or from its plan, in one call; like bh_fill. */
%extend bh_event {
    bh_status fill_message(bh_event_kind kind, bh_bytes queue, const bh_history *history, int redelivered,
                           int64_t now_ms, bh_bytes error_class, bh_bytes error, int64_t duration_us) {
        bh_status status = bh_fill($self, kind, queue, error_class, error, duration_us);
        return status == BH_OK ? bh_event_set_history($self, history, redelivered, now_ms) : status;
    }
#ifndef SWIGJAVASCRIPT /* Node's copies keep the plan's results, and not the plan */
    bh_status fill_plan(bh_event_kind kind, bh_bytes queue, const bh_plan *plan, bh_bytes error_class,
                        int64_t duration_us) {
        bh_status status = bh_fill($self, kind, queue, error_class, bh_str(""), duration_us);
        return status == BH_OK ? bh_event_set_plan($self, plan) : status;
    }
#endif
}

%typemap(in, numinputs=0) int64_t no_wait "$1 = 0;"

%typemap(in, numinputs=0) int64_t *number (int64_t number = 0) "$1 = &number;"
#if defined(SWIGPYTHON)
%typemap(argout) int64_t *number {
    %append_output(PyLong_FromLongLong(*$1));
}
#elif defined(SWIGRUBY)
%typemap(argout) int64_t *number {
    %append_output(LL2NUM(*$1));
}
#elif defined(SWIGJAVASCRIPT)
%typemap(argout, fragment="bh_int64") int64_t *number {
    if (result == BH_OK)
        $result = bh_int64_out(env, *$1);
}
#endif

/* A class of the language for an opaque struct of the core. */
#ifdef SWIGPYTHON /* without its proxy, which costs more than most calls and which nothing uses */
#define OWNED SWIG_POINTER_OWN | SWIG_POINTER_NOSHADOW
#else
#define OWNED SWIG_POINTER_OWN
#endif
%define %object(name, type)
%rename(name) type;
typedef struct type {} type;
%extend type {
    ~type() {
        type##_free($self);
    }
}
%typemap(in, numinputs=0) type **out (type *made = NULL) "$1 = &made;"
%typemap(argout) type **out {
    %append_output(SWIG_NewPointerObj(*$1, $*1_descriptor, OWNED));
}
%enddef
