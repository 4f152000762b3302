/*
 * The only typemaps.
 *
 * bh_bytes, in: text or bytes, a zero byte included, read during the call. Out: text, copied; what is not UTF-8 comes out
 * so that it goes in again as the bytes it was. `binary` is a bh_bytes that comes out as bytes.
 *
 * T **out: no argument; the result is the status and the object, nothing where the status is a failure.
 * int64_t *number: no argument; the result is the status and the number. In Node, where an array costs more than the call: the
 * number, or the status, which is below 0.
 * int64_t no_wait: no argument; 0, so that nothing behind a binding blocks.
 */
%{
typedef bh_bytes binary;
%}

/* Makes an event another one, of what most have: an error and its class that are empty, and a duration below 0, are left out. */
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

%fragment("bh_in", "header") %{
/* Python's own encoding of a str, or a new reference in *owner where it has lone surrogates: bytes that were no UTF-8. */
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
        value = *owner = PyUnicode_AsEncodedString(value, "utf-8", "surrogateescape");
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

/*
 * What a plan decided but for the headers, in one call: a tuple of action, attempts, delay, rung, reason, id, exchange,
 * routing_key, mandatory, expiration, kept properties (bits by their numbers).
 */
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
    PyObject *all = PyTuple_New(11);
    if (!all)
        return NULL;
    long kept = 0;
    for (int i = 0; i < BH_PROPERTY_LAST; i++)
        kept |= (long)bh_plan_keeps_property(plan, (bh_property)i) << i;
    PyTuple_SetItem(all, at++, PyLong_FromLong(bh_plan_action(plan)));
    PyTuple_SetItem(all, at++, PyLong_FromLongLong(bh_plan_attempts(plan)));
    PyTuple_SetItem(all, at++, PyLong_FromLongLong(bh_plan_delay_ms(plan)));
    PyTuple_SetItem(all, at++, PyLong_FromLongLong(bh_plan_rung_ms(plan)));
    PyTuple_SetItem(all, at++, bh_text_out(bh_plan_reason(plan)));
    PyTuple_SetItem(all, at++, bh_text_out(bh_plan_id(plan)));
    PyTuple_SetItem(all, at++, bh_text_out(bh_plan_exchange(plan)));
    PyTuple_SetItem(all, at++, bh_text_out(bh_plan_routing_key(plan)));
    PyTuple_SetItem(all, at++, PyBool_FromLong(bh_plan_mandatory(plan)));
    PyTuple_SetItem(all, at++, bh_text_out(bh_plan_expiration(plan)));
    PyTuple_SetItem(all, at++, PyLong_FromLong(kept));
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

#elif defined(SWIGRUBY)

%typemap(in) bh_bytes (VALUE text = Qnil) {
    text = $input;
    StringValue(text); /* raises TypeError: nothing is there to be freed yet */
    $1.data = RSTRING_PTR(text);
    $1.size = (size_t)RSTRING_LEN(text);
}
%typemap(freearg) bh_bytes "RB_GC_GUARD(text$argnum);"
%typemap(out) bh_bytes "$result = rb_utf8_str_new($1.data, (long)$1.size);"
%typemap(out) binary "$result = rb_str_new($1.data, (long)$1.size);"

%fragment("bh_object", "header") %{
/* The core's object that an object has. SWIG asks each object by an instance variable what it is: its class tells it too. */
static int bh_object_in(VALUE value, void **object, swig_type_info *type)
{
    if (!NIL_P(value) && !rb_obj_is_kind_of(value, ((swig_class *)type->clientdata)->klass))
        return SWIG_TypeError;
    return SWIG_ConvertPtr(value, object, NULL, 0);
}
%}
%typemap(in, fragment="bh_object") SWIGTYPE * (void *object = NULL) {
    int found = bh_object_in($input, &object, $1_descriptor);
    if (!SWIG_IsOK(found))
        SWIG_exception_fail(SWIG_ArgError(found), Ruby_Format_TypeError("", "$1_type", "$symname", $argnum, $input));
    $1 = ($1_ltype)object;
}

/* The headers of a copy, in one call: those that it keeps of a Hash, as they are, and those that the plan sets. */
%{
static VALUE bh_text_out(bh_bytes text)
{
    return rb_utf8_str_new(text.data, (long)text.size);
}

struct bh_copying {
    const bh_plan *plan;
    VALUE copy;
};

static int bh_copy_header(VALUE name, VALUE value, VALUE argument)
{
    struct bh_copying *copying = (struct bh_copying *)argument;
    VALUE text = rb_obj_as_string(name);
    bh_bytes bytes = {RSTRING_PTR(text), (size_t)RSTRING_LEN(text)};
    if (bh_plan_keeps_header(copying->plan, bytes))
        rb_hash_aset(copying->copy, text, value);
    RB_GC_GUARD(text);
    return ST_CONTINUE;
}

/* The original's value of a header, whose name may be a Symbol. */
static VALUE bh_original_header(VALUE headers, VALUE name)
{
    VALUE value = NIL_P(headers) ? Qnil : rb_hash_lookup2(headers, name, Qundef);
    return value == Qundef ? rb_hash_lookup(headers, rb_to_symbol(name)) : value;
}

static VALUE bh_set_header(const bh_plan *plan, size_t index, VALUE headers)
{
    switch (bh_plan_header_type(plan, index)) {
    case BH_TYPE_INT64:
        return LL2NUM(bh_plan_header_int(plan, index));
    case BH_TYPE_ARRAY:
        return rb_ary_new_from_args(1, bh_text_out(bh_plan_header_string(plan, index)));
    case BH_TYPE_VOID:
        return bh_original_header(headers, bh_text_out(bh_plan_header_source(plan, index)));
    default:
        return bh_text_out(bh_plan_header_string(plan, index));
    }
}
%}
%extend bh_plan {
    VALUE copy_headers(VALUE headers) {
        VALUE copy = rb_hash_new();
        struct bh_copying copying = {$self, copy};
        if (!NIL_P(headers))
            rb_hash_foreach(headers = rb_convert_type(headers, T_HASH, "Hash", "to_hash"), bh_copy_header, (VALUE)&copying);
        for (size_t i = 0; i < bh_plan_header_count($self); i++) {
            bh_bytes name = bh_plan_header_name($self, i);
            rb_hash_aset(copy, rb_enc_interned_str(name.data, (long)name.size, rb_utf8_encoding()),
                         bh_set_header($self, i, headers));
        }
        return copy;
    }
    /* The properties that the copy keeps: bits by their numbers. */
    int kept_properties() {
        int kept = 0;
        for (int i = 0; i < BH_PROPERTY_LAST; i++)
            kept |= bh_plan_keeps_property($self, (bh_property)i) << i;
        return kept;
    }
}
%{
#include <ruby/encoding.h>
%}

#elif defined(SWIGJAVASCRIPT)

%{
void backhop_export_watch(Napi::Env env, Napi::Object exports); /* node/native/watch.cpp */
%}
%init %{
    backhop_export_watch(env, exports);
%}

%fragment("bh_object", "header") %{
/* The core's object that an object has. SWIG asks by instanceof whether it is one of its own, which costs two calls. */
static bool bh_object_in(Napi::Env env, Napi::Value value, void **object)
{
    SWIG_NAPI_ObjectWrap_inst *wrap = nullptr;
    if (!value.IsNull() && napi_unwrap(env, value, reinterpret_cast<void **>(&wrap)) != napi_ok)
        return false;
    *object = wrap ? wrap->self : nullptr;
    return true;
}
%}
%typemap(in, fragment="bh_object") SWIGTYPE * (void *object = nullptr) {
    if (!bh_object_in(env, $input, &object))
        SWIG_exception_fail(SWIG_TypeError, "argument $argnum of $symname is no $1_basetype");
    $1 = static_cast<$1_ltype>(object);
}

%fragment("bh_out", "header") %{
/* A String, or a Buffer where the bytes are no UTF-8: a String would hold U+FFFD in their place. */
static Napi::Value bh_out(Napi::Env env, bh_bytes bytes)
{
    bool is_ascii = true;
    for (size_t i = 0; i < bytes.size && is_ascii; i++)
        is_ascii = static_cast<unsigned char>(bytes.data[i]) < 0x80;
    napi_value ascii;
    if (is_ascii && napi_create_string_latin1(env, bytes.data, bytes.size, &ascii) == napi_ok) // the faster one
        return Napi::Value(env, ascii);
    Napi::String text = Napi::String::New(env, bytes.data, bytes.size);
    if (text.Utf8Value() == std::string(bytes.data, bytes.size))
        return text;
    return Napi::Buffer<char>::Copy(env, bytes.data, bytes.size);
}
%}
%fragment("bh_in", "header") %{
/* The bytes of a String, which are copied, or of a Buffer. */
class bh_given {
public:
    bool take(Napi::Env env, napi_value value, bh_bytes *bytes)
    {
        size_t size = 0;
        if (napi_get_value_string_utf8(env, value, some, sizeof some, &size) == napi_ok) {
            *bytes = {some, size};
            if (size + longest_character < sizeof some)
                return true;
            all = Napi::String(env, value).Utf8Value(); /* it may have been cut */
            *bytes = {all.data(), all.size()};
            return true;
        }
        void *data = nullptr;
        if (napi_get_buffer_info(env, value, &data, &size) != napi_ok)
            return false;
        *bytes = {size ? static_cast<const char *>(data) : "", size};
        return true;
    }

private:
    static const size_t longest_character = 4; /* bytes; none is cut in two */
    char some[256];
    std::string all;
};
%}
%typemap(in, fragment="bh_in") bh_bytes (bh_given given) {
    if (!given.take(env, $input, &$1))
        SWIG_exception_fail(SWIG_TypeError, "argument $argnum of $symname is neither a string nor a Buffer");
}
%typemap(out, fragment="bh_out") bh_bytes "$result = bh_out(env, $1);"
%typemap(out) binary "$result = Napi::Buffer<char>::Copy(env, $1.data, $1.size);"

%fragment("bh_int64", "header") %{
/* A Number, or a BigInt where a Number would not be exact. */
static Napi::Value bh_int64_out(Napi::Env env, int64_t number)
{
    const int64_t most = INT64_C(9007199254740991); /* Number.MAX_SAFE_INTEGER */
    if (number < -most || number > most)
        return Napi::BigInt::New(env, number);
    return Napi::Number::New(env, static_cast<double>(number));
}

static bool bh_int64_in(Napi::Value value, int64_t *number)
{
    bool is_exact = true;
    if (value.IsBigInt()) {
        *number = value.As<Napi::BigInt>().Int64Value(&is_exact);
        return is_exact;
    }
    if (!value.IsNumber())
        return false;
    double given = value.As<Napi::Number>().DoubleValue();
    if (!(given >= -9223372036854775808.0 && given < 9223372036854775808.0)) /* nor NaN */
        return false;
    *number = static_cast<int64_t>(given);
    return true;
}
%}
%typemap(in, fragment="bh_int64") int64_t {
    if (!bh_int64_in($input, &$1))
        SWIG_exception_fail(SWIG_TypeError, "argument $argnum of $symname is no integer of 64 bits");
}
%typemap(out, fragment="bh_int64") int64_t "$result = bh_int64_out(env, $1);"

/*
 * All that a plan decided but for the headers, in one call, as arguments of a function, whose result it gives: action,
 * attempts, delay, retry_after_met, reason, id, exchange, routing_key, mandatory, on_demand, rung, expiration, kept
 * properties (bits by their numbers). The headers likewise: of each name, type and value: an int64, or a string (of an
 * array its only one, of a void the source).
 */
%{
#include <vector>

typedef napi_value function;
struct described_plan {
    const bh_plan *plan;
    function to;
};
struct described_headers {
    const bh_plan *plan;
    function to;
};
%}
%typemap(in) function "$1 = $input;"
%fragment("bh_described", "header", fragment="bh_out", fragment="bh_int64") %{
static Napi::Value bh_described(Napi::Env env, described_plan described)
{
    const bh_plan *plan = described.plan;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < BH_PROPERTY_LAST; i++)
        kept |= static_cast<uint32_t>(bh_plan_keeps_property(plan, static_cast<bh_property>(i))) << i;
    const napi_value all[] = {
        Napi::Number::New(env, bh_plan_action(plan)),
        bh_int64_out(env, bh_plan_attempts(plan)),
        bh_int64_out(env, bh_plan_delay_ms(plan)),
        Napi::Boolean::New(env, bh_plan_retry_after_met(plan)),
        bh_out(env, bh_plan_reason(plan)),
        bh_out(env, bh_plan_id(plan)),
        bh_out(env, bh_plan_exchange(plan)),
        bh_out(env, bh_plan_routing_key(plan)),
        Napi::Boolean::New(env, bh_plan_mandatory(plan)),
        Napi::Boolean::New(env, bh_plan_on_demand(plan)),
        bh_int64_out(env, bh_plan_rung_ms(plan)),
        bh_out(env, bh_plan_expiration(plan)),
        Napi::Number::New(env, kept),
    };
    return Napi::Function(env, described.to).Call(sizeof all / sizeof all[0], all);
}

static Napi::Value bh_described(Napi::Env env, described_headers described)
{
    const bh_plan *plan = described.plan;
    std::vector<napi_value> all;
    for (size_t i = 0; i < bh_plan_header_count(plan); i++) {
        bh_type type = bh_plan_header_type(plan, i);
        all.push_back(bh_out(env, bh_plan_header_name(plan, i)));
        all.push_back(Napi::Number::New(env, type));
        if (type == BH_TYPE_INT64)
            all.push_back(bh_int64_out(env, bh_plan_header_int(plan, i)));
        else if (type == BH_TYPE_VOID)
            all.push_back(bh_out(env, bh_plan_header_source(plan, i)));
        else
            all.push_back(bh_out(env, bh_plan_header_string(plan, i)));
    }
    return Napi::Function(env, described.to).Call(all);
}
%}
%typemap(out, fragment="bh_described") described_plan, described_headers "$result = bh_described(env, $1);"

/* A Buffer to write to. */
%{
struct room {
    char *data;
    size_t size;
};
%}
%typemap(in) room {
    void *data = nullptr;
    if (napi_get_buffer_info(env, $input, &data, &$1.size) != napi_ok)
        SWIG_exception_fail(SWIG_TypeError, "argument $argnum of $symname is no Buffer");
    $1.data = static_cast<char *>(data);
}
%extend bh_plan {
    described_plan described(function to) {
        return {$self, to};
    }
    described_headers described_headers(function to) {
        return {$self, to};
    }
    /* bh_plan_copy_properties, written to a Buffer, which costs less than a new one: how many bytes; 0 also where it has no room. */
    int64_t write_copy_properties(const bh_delivery *delivery, int smallest_integers, room to) {
        bh_bytes properties = bh_plan_copy_properties($self, delivery, smallest_integers);
        if (properties.size > to.size)
            return 0;
        memcpy(to.data, properties.data, properties.size);
        return static_cast<int64_t>(properties.size);
    }
}

/* A delivery from its beginning, in one call; what it held before is gone. */
%extend bh_delivery {
    bh_status begin(bh_bytes exchange, bh_bytes routing_key) {
        bh_delivery_clear($self);
        bh_status status = bh_delivery_set_exchange($self, exchange);
        return status == BH_OK ? bh_delivery_set_routing_key($self, routing_key) : status;
    }
}

/* A delivery that is settled as it comes, in one call: its entry, or the status of a failure, which is below 0. */
%extend bh_ledger {
    int64_t arrive_settled(int64_t channel, int64_t delivery_tag, bh_action action, int64_t rung_ms, bh_bytes id, bh_bytes exchange,
                           bh_bytes routing_key) {
        int64_t entry = 0;
        bh_status status = bh_ledger_arrive($self, channel, delivery_tag, &entry);
        if (status == BH_OK)
            status = bh_ledger_settle($self, entry, action, rung_ms, id, exchange, routing_key);
        return status == BH_OK ? entry : static_cast<int64_t>(status);
    }
}

/* A Float64Array, to write numbers to: a step of a ledger and all that it tells, in one call. Behind the last step: when to ask
 * again. */
%{
struct numbers {
    double *data;
    size_t count;
};
%}
%typemap(in) numbers {
    napi_typedarray_type type;
    void *data = nullptr;
    if (napi_get_typedarray_info(env, $input, &type, &$1.count, &data, nullptr, nullptr) != napi_ok || type != napi_float64_array)
        SWIG_exception_fail(SWIG_TypeError, "argument $argnum of $symname is no Float64Array");
    $1.data = static_cast<double *>(data);
}
%extend bh_ledger {
    bh_step advance(int64_t now_ms, int may_publish, numbers told) {
        bh_step step = bh_ledger_next($self, now_ms, may_publish);
        const int64_t all[] = {
            bh_ledger_step_entry($self),     bh_ledger_step_channel($self), bh_ledger_step_tag($self), bh_ledger_step_event($self),
            bh_ledger_step_status($self), bh_ledger_step_delay_ms($self), bh_ledger_step_count($self), bh_ledger_due_ms($self),
        };
        for (size_t i = 0; i < sizeof all / sizeof all[0] && i < told.count; i++)
            told.data[i] = static_cast<double>(all[i]);
        return step;
    }
}

/* All that an event has, likewise: kind, level, why in words, and each field by its number, undefined where it has none. */
%{
struct described_event {
    const bh_event *event;
    function to;
};
%}
%fragment("bh_described_event", "header", fragment="bh_out", fragment="bh_int64") %{
static Napi::Value bh_described_event(Napi::Env env, described_event described)
{
    const bh_event *event = described.event;
    std::vector<napi_value> all = {
        Napi::Number::New(env, bh_event_what(event)),
        Napi::Number::New(env, bh_event_level(event)),
        bh_out(env, bh_event_text(event)),
    };
    for (int i = 0; i < BH_FIELD_LAST; i++) {
        bh_field field = static_cast<bh_field>(i);
        if (!bh_event_has(event, field))
            all.push_back(env.Undefined());
        else if (bh_event_field_is_string(i))
            all.push_back(bh_out(env, bh_event_string(event, field)));
        else
            all.push_back(bh_int64_out(env, bh_event_int(event, field)));
    }
    return Napi::Function(env, described.to).Call(all);
}
%}
%typemap(out, fragment="bh_described_event") described_event "$result = bh_described_event(env, $1);"
%{
struct bh_filling {
    bh_event *event;
    bh_status status;

    void string(bh_field field, bh_bytes value)
    {
        if (status == BH_OK && value.size)
            status = bh_event_set_string(event, field, value);
    }
    void number(bh_field field, int64_t value)
    {
        if (status == BH_OK && value)
            status = bh_event_set_int(event, field, value);
    }
    /* Counts it, where there are metrics: its level, or the status of a failure, which is below 0. */
    int64_t end(bh_metrics *metrics)
    {
        if (status == BH_OK && metrics)
            status = bh_metrics_observe(metrics, event);
        return status == BH_OK ? static_cast<int64_t>(bh_event_level(event)) : static_cast<int64_t>(status);
    }
};
%}
%extend bh_event {
    described_event described(function to) {
        return {$self, to};
    }
    /* Makes it another event, in one call, and counts it, where there are metrics: its level, or the status of a failure, which is
     * below 0. What is empty or 0 is left out, and as bh_fill. */
    int64_t fill(bh_event_kind kind, bh_bytes queue, bh_bytes id, int64_t attempts, int64_t delay_ms, int64_t count,
                 bh_bytes reason, bh_bytes error_class, bh_bytes error, bh_bytes text, bh_bytes cause, int64_t duration_us,
                 int64_t status, bh_bytes connection, bh_metrics *metrics) {
        bh_filling filling = {$self, bh_fill($self, kind, queue, error_class, error, duration_us)};
        filling.string(BH_FIELD_ID, id);
        filling.number(BH_FIELD_ATTEMPTS, attempts);
        filling.number(BH_FIELD_DELAY, delay_ms);
        filling.number(BH_FIELD_COUNT, count);
        filling.string(BH_FIELD_REASON, reason);
        filling.string(BH_FIELD_TEXT, text);
        filling.number(BH_FIELD_STATUS, status);
        filling.string(BH_FIELD_CONNECTION, connection);
        if (filling.status == BH_OK)
            filling.status = bh_event_set_cause($self, cause);
        return filling.end(metrics);
    }
}

#endif

/* What a message and its handler, or its plan, tell, in one call; as bh_fill. */
%extend bh_event {
    bh_status fill_message(bh_event_kind kind, bh_bytes queue, const bh_history *history, int redelivered, int64_t now_ms,
                           bh_bytes error_class, bh_bytes error, int64_t duration_us) {
        bh_status status = bh_fill($self, kind, queue, error_class, error, duration_us);
        return status == BH_OK ? bh_event_set_history($self, history, redelivered, now_ms) : status;
    }
#ifndef SWIGJAVASCRIPT /* whose copies keep what a plan tells, and not the plan */
    bh_status fill_plan(bh_event_kind kind, bh_bytes queue, const bh_plan *plan, bh_bytes error_class, int64_t duration_us) {
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
