/* The typemaps of bytes.i for Ruby. */

%typemap(in) bh_bytes (VALUE text = Qnil) {
    text = $input;
    StringValue(text); /* raises TypeError: nothing is there to be freed yet */
    $1.data = RSTRING_PTR(text);
    $1.size = (size_t)RSTRING_LEN(text);
}
%typemap(freearg) bh_bytes "RB_GC_GUARD(text$argnum);"
%typemap(out) bh_bytes "$result = rb_utf8_str_new($1.data, (long)$1.size);"
%typemap(out) binary "$result = rb_str_new($1.data, (long)$1.size);"

/* The fields of a struct, for %record. */
%fragment("bh_put", "header") %{
static VALUE bh_text_field(bh_bytes text)
{
    return rb_utf8_str_new(text.data ? text.data : "", (long)text.size);
}
static VALUE bh_int_field(int64_t number)
{
    return LL2NUM(number);
}
#define bh_put(value) _Generic((value), bh_bytes: bh_text_field, double: rb_float_new, default: bh_int_field)(value)
#define bh_record(type, value) bh_record_##type(value)
#define BH_PUT(field) rb_ary_push(record, bh_put(it->field));
#define BH_PUT_TEXT(field) rb_ary_push(record, bh_put(bh_str(it->field))); /* a string in the struct */
#define BH_PUT_EACH(size, value) \
    do { \
        VALUE each = rb_ary_new_capa((long)it->size); \
        for (size_t i = 0; i < it->size; i++) \
            rb_ary_push(each, value); \
        rb_ary_push(record, each); \
    } while (0);
%}
%define %record(type, count, fields)
%fragment("bh_record_" "type", "header", fragment="bh_put") {
static VALUE bh_record_##type(const type *it)
{
    VALUE record = rb_ary_new_capa(count);
    fields
    return record;
}
}
%typemap(in, numinputs=0, fragment="bh_record_" "type") type *out (type it) "$1 = &it;"
%typemap(argout) type *out {
    $result = bh_record_##type($1);
}
%enddef

%fragment("bh_object", "header") %{
/* Unwraps the core's object. SWIG would read the type from an instance variable; the class is
 * enough, and faster. */
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

/* Returns the headers of a copy: headers of a Hash that the copy keeps, unchanged, and headers that
 * the plan sets. */
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

static VALUE bh_set_header(const bh_header *header, VALUE headers)
{
    switch (header->type) {
    case BH_TYPE_INT64:
        return LL2NUM(header->integer);
    case BH_TYPE_ARRAY:
        return rb_ary_new_from_args(1, bh_text_out(header->string));
    case BH_TYPE_VOID:
        return bh_original_header(headers, bh_text_out(header->source));
    default:
        return bh_text_out(header->string);
    }
}
%}
%extend bh_plan {
    VALUE copy_headers(VALUE headers) {
        VALUE copy = rb_hash_new();
        struct bh_copying copying = {$self, copy};
        if (!NIL_P(headers))
            rb_hash_foreach(headers = rb_convert_type(headers, T_HASH, "Hash", "to_hash"), bh_copy_header,
                            (VALUE)&copying);
        bh_header header;
        for (size_t i = 0; bh_plan_header($self, i, &header) == BH_OK; i++)
            rb_hash_aset(copy, rb_enc_interned_str(header.name.data, (long)header.name.size, rb_utf8_encoding()),
                         bh_set_header(&header, headers));
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
