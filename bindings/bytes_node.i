/* The typemaps of bytes.i for Node. */

%{
void backhop_export_watch(Napi::Env env, Napi::Object exports); /* node/native/watch.cpp */
%}
%init %{
    backhop_export_watch(env, exports);
%}

%fragment("bh_object", "header") %{
/* Unwraps the core's object. SWIG would check it by instanceof first, which costs two more
 * calls. */
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
/* Returns a String, or a Buffer if the bytes are not UTF-8: a String would hold U+FFFD in their
 * place. */
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
/* Returns a Number, or a BigInt if a Number would not be exact. */
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

/* The fields of a struct, for %record. */
%fragment("bh_put", "header", fragment="bh_out", fragment="bh_int64") %{
static Napi::Value bh_put(Napi::Env env, bh_bytes text)
{
    return bh_out(env, {text.data ? text.data : "", text.size});
}
static Napi::Value bh_put(Napi::Env env, double number)
{
    return Napi::Number::New(env, number);
}
template <typename Integer> static Napi::Value bh_put(Napi::Env env, Integer number)
{
    return bh_int64_out(env, static_cast<int64_t>(number));
}
#define bh_put(value) bh_put(env, value)
#define BH_PUT(field) record[at++] = bh_put(it->field);
#define BH_PUT_TEXT(field) record[at++] = bh_put(bh_str(it->field)); /* a string in the struct */
#define BH_PUT_EACH(size, value) \
    do { \
        Napi::Array each = Napi::Array::New(env, it->size); \
        for (size_t i = 0; i < it->size; i++) \
            each[static_cast<uint32_t>(i)] = value; \
        record[at++] = each; \
    } while (0);
#define bh_record(type, value) bh_record_##type(env, value)
%}
%define %record(type, count, fields)
%fragment("bh_record_" "type", "header", fragment="bh_put") {
static Napi::Value bh_record_##type(Napi::Env env, const type *it)
{
    uint32_t at = 0;
    Napi::Array record = Napi::Array::New(env, count);
    fields
    return record;
}
}
%typemap(in, numinputs=0, fragment="bh_record_" "type") type *out (type it) "$1 = &it;"
%typemap(argout) type *out {
    $result = bh_record_##type(env, $1);
}
%enddef

/*
 * Calls a function with the decisions of a plan and returns its result. The arguments are action,
 * attempts, delay, retry_after_met, reason, id, exchange, routing_key, mandatory, on_demand, rung,
 * expiration and kept properties (bits by their numbers).
 *
 * Headers are passed likewise: name, type and value of each header. The value is an int64 or a
 * string. For an array it is the only element, for a void the source.
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
    bh_planned planned;
    bh_copy copy;
    bh_plan_read(plan, &planned);
    bh_plan_copy(plan, &copy);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < BH_PROPERTY_LAST; i++)
        kept |= static_cast<uint32_t>(bh_plan_keeps_property(plan, static_cast<bh_property>(i))) << i;
    const napi_value all[] = {
        Napi::Number::New(env, planned.action),
        bh_int64_out(env, planned.attempts),
        bh_int64_out(env, planned.delay_ms),
        Napi::Boolean::New(env, planned.retry_after_met),
        bh_out(env, planned.reason),
        bh_out(env, copy.id),
        bh_out(env, copy.exchange),
        bh_out(env, copy.routing_key),
        Napi::Boolean::New(env, copy.mandatory),
        Napi::Boolean::New(env, copy.on_demand),
        bh_int64_out(env, copy.rung_ms),
        bh_out(env, copy.expiration),
        Napi::Number::New(env, kept),
    };
    return Napi::Function(env, described.to).Call(sizeof all / sizeof all[0], all);
}

static Napi::Value bh_described(Napi::Env env, described_headers described)
{
    const bh_plan *plan = described.plan;
    std::vector<napi_value> all;
    bh_header header;
    for (size_t i = 0; bh_plan_header(plan, i, &header) == BH_OK; i++) {
        all.push_back(bh_out(env, header.name));
        all.push_back(Napi::Number::New(env, header.type));
        if (header.type == BH_TYPE_INT64)
            all.push_back(bh_int64_out(env, header.integer));
        else if (header.type == BH_TYPE_VOID)
            all.push_back(bh_out(env, header.source));
        else
            all.push_back(bh_out(env, header.string));
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
    /* Writes bh_plan_copy_properties to a Buffer, which costs less than a new one. Returns the
     * number of bytes, or 0 if they do not fit. */
    int64_t write_copy_properties(const bh_delivery *delivery, int hidden, room to) {
        bh_bytes properties = bh_plan_copy_properties($self, delivery, hidden);
        if (properties.size > to.size)
            return 0;
        memcpy(to.data, properties.data, properties.size);
        return static_cast<int64_t>(properties.size);
    }
}

/* Replaces the content of a delivery, in one call. */
%extend bh_delivery {
    bh_status begin(bh_bytes exchange, bh_bytes routing_key) {
        bh_delivery_clear($self);
        return bh_delivery_set_address($self, exchange, routing_key);
    }
}

/* A delivery that is settled as it comes, in one call: its entry, or the status of a failure, which
 * is below 0. */
%extend bh_ledger {
    int64_t arrive_settled(int64_t channel, int64_t delivery_tag, bh_action action, int64_t rung_ms, bh_bytes id,
                           bh_bytes exchange, bh_bytes routing_key) {
        int64_t entry = 0;
        bh_status status = bh_ledger_arrive($self, channel, delivery_tag, &entry);
        if (status == BH_OK)
            status = bh_ledger_settle($self, entry, action, rung_ms, id, exchange, routing_key);
        return status == BH_OK ? entry : static_cast<int64_t>(status);
    }
}

/* A Float64Array, for the fields of a ledger's step and, after the last step, its
 * bh_ledger_due_ms. */
%{
struct numbers {
    double *data;
    size_t count;
};
%}
%typemap(in) numbers {
    napi_typedarray_type type;
    void *data = nullptr;
    if (napi_get_typedarray_info(env, $input, &type, &$1.count, &data, nullptr, nullptr) != napi_ok ||
        type != napi_float64_array)
        SWIG_exception_fail(SWIG_TypeError, "argument $argnum of $symname is no Float64Array");
    $1.data = static_cast<double *>(data);
}
%extend bh_ledger {
    bh_step_kind advance(int64_t now_ms, int may_publish, numbers out) {
        bh_step step;
        bh_ledger_next($self, now_ms, may_publish, &step);
        const int64_t all[] = {
            step.entry, step.channel, step.tag, step.event, step.status, step.delay_ms, step.count,
            bh_ledger_due_ms($self),
        };
        for (size_t i = 0; i < sizeof all / sizeof all[0] && i < out.count; i++)
            out.data[i] = static_cast<double>(all[i]);
        return step.kind;
    }
}

/* Calls a function with kind, level and reason of an event, then each field by its number, or
 * undefined. */
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
    /* Counts the event if `metrics` is set. Returns its level, or a status below 0. */
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
    /* Fills the event anew, as bh_fill, and leaves out empty texts and zeros. Counts it if
     * `metrics` is set. Returns its level, or a status below 0. */
    int64_t fill(bh_event_kind kind, bh_bytes queue, bh_bytes id, int64_t attempts, int64_t delay_ms, int64_t count,
                 bh_bytes reason, bh_bytes error_class, bh_bytes error, bh_bytes text, bh_bytes cause,
                 int64_t duration_us, int64_t status, bh_bytes connection, int64_t deferrals, bh_metrics *metrics) {
        bh_filling filling = {$self, bh_fill($self, kind, queue, error_class, error, duration_us)};
        filling.string(BH_FIELD_ID, id);
        filling.number(BH_FIELD_ATTEMPTS, attempts);
        filling.number(BH_FIELD_DELAY, delay_ms);
        filling.number(BH_FIELD_COUNT, count);
        filling.string(BH_FIELD_REASON, reason);
        filling.string(BH_FIELD_TEXT, text);
        filling.number(BH_FIELD_STATUS, status);
        filling.string(BH_FIELD_CONNECTION, connection);
        filling.number(BH_FIELD_DEFERRALS, deferrals);
        if (filling.status == BH_OK)
            filling.status = bh_event_set_cause($self, cause);
        return filling.end(metrics);
    }
}
