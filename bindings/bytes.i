/*
 * The only typemaps.
 *
 * bh_bytes, in: text or bytes, a zero byte included, read during the call. Out: text, copied; what is not UTF-8 comes out
 * so that it goes in again as the bytes it was. `binary` is a bh_bytes that comes out as bytes.
 *
 * T **out: no argument; the result is the status and the object, nothing where the status is a failure.
 * int64_t no_wait: no argument; 0, so that nothing behind a binding blocks.
 */
%{
typedef bh_bytes binary;
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

#elif defined(SWIGJAVASCRIPT)

%fragment("bh_out", "header") %{
/* A String, or a Buffer where the bytes are no UTF-8: a String would hold U+FFFD in their place. */
static Napi::Value bh_out(Napi::Env env, bh_bytes bytes)
{
    Napi::String text = Napi::String::New(env, bytes.data, bytes.size);
    if (text.Utf8Value() == std::string(bytes.data, bytes.size))
        return text;
    return Napi::Buffer<char>::Copy(env, bytes.data, bytes.size);
}
%}
%typemap(in) bh_bytes (std::string text) {
    if ($input.IsBuffer()) {
        Napi::Buffer<char> buffer = $input.As<Napi::Buffer<char>>();
        $1.data = buffer.Data();
        $1.size = buffer.Length();
    } else if ($input.IsString()) {
        text = $input.As<Napi::String>().Utf8Value();
        $1.data = text.data();
        $1.size = text.size();
    } else {
        SWIG_exception_fail(SWIG_TypeError, "argument $argnum of $symname is neither a string nor a Buffer");
    }
}
%typemap(out, fragment="bh_out") bh_bytes "$result = bh_out(env, $1);"
%typemap(out) binary "$result = Napi::Buffer<char>::Copy(env, $1.data, $1.size);"

#endif

%typemap(in, numinputs=0) int64_t no_wait "$1 = 0;"

/* A class of the language for an opaque struct of the core. */
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
    %append_output(SWIG_NewPointerObj(*$1, $*1_descriptor, SWIG_POINTER_OWN));
}
%enddef
