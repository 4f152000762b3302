/*
 * Watch: calls back when a descriptor is readable, by the event loop's own poll, without reading
 * it.
 *
 *     const watch = new Watch(descriptor, callback)     watching begins
 *     watch.stop(); watch.start()                       while the caller cannot take the input
 *     watch.close()                                     before the descriptor is closed; no
 *                                                       callback comes any more
 *
 * An open watch keeps the process running. If its thread's environment ends first, that closes the
 * watch.
 */
#include <napi.h>
#include <uv.h>

namespace {

class Watch : public Napi::ObjectWrap<Watch> {
public:
    static void Export(Napi::Env env, Napi::Object exports)
    {
        exports.Set("Watch", DefineClass(env, "Watch", {InstanceMethod<&Watch::Start>("start"),
                                                        InstanceMethod<&Watch::Stop>("stop"),
                                                        InstanceMethod<&Watch::Close>("close")}));
    }

    explicit Watch(const Napi::CallbackInfo &info) : Napi::ObjectWrap<Watch>(info)
    {
        Napi::Env env = info.Env();
        uv_loop_t *loop = nullptr;
        if (info.Length() < 2 || !info[0].IsNumber() || !info[1].IsFunction())
            throw Napi::TypeError::New(env, "a Watch takes a descriptor and a function");
        callback_ = Napi::Persistent(info[1].As<Napi::Function>());
        poll_ = new Poll{{}, this, nullptr};
        if (napi_get_uv_event_loop(env, &loop) != napi_ok ||
            uv_poll_init(loop, &poll_->handle, info[0].As<Napi::Number>().Int32Value()) != 0) {
            delete poll_;
            throw Napi::Error::New(env, "the event loop cannot watch this descriptor");
        }
        poll_->handle.data = poll_;
        napi_add_async_cleanup_hook(env, EnvironmentEnds, poll_, &poll_->hook);
        Ref(); /* until it is closed */
        uv_poll_start(&poll_->handle, UV_READABLE, Readable);
    }

private:
    /* It outlives the object: libuv closes handles later. */
    struct Poll {
        uv_poll_t handle;
        Watch *watch; /* nullptr: closed */
        napi_async_cleanup_hook_handle hook;
    };

    void Start(const Napi::CallbackInfo &)
    {
        if (poll_)
            uv_poll_start(&poll_->handle, UV_READABLE, Readable);
    }

    void Stop(const Napi::CallbackInfo &)
    {
        if (poll_)
            uv_poll_stop(&poll_->handle);
    }

    void Close(const Napi::CallbackInfo &)
    {
        Close();
    }

    void Close()
    {
        if (!poll_)
            return;
        Poll *poll = poll_;
        poll_ = nullptr;
        poll->watch = nullptr;
        callback_.Reset();
        Unref();
        uv_poll_stop(&poll->handle);
        uv_close(reinterpret_cast<uv_handle_t *>(&poll->handle), Closed);
    }

    static void Closed(uv_handle_t *handle)
    {
        Poll *poll = static_cast<Poll *>(handle->data);
        napi_remove_async_cleanup_hook(poll->hook);
        delete poll;
    }

    static void EnvironmentEnds(napi_async_cleanup_hook_handle, void *data)
    {
        Poll *poll = static_cast<Poll *>(data);
        if (poll->watch)
            poll->watch->Close();
    }

    /* In C, because C++ can throw nothing if the environment ends meanwhile. */
    static void Readable(uv_poll_t *handle, int, int)
    {
        Watch *self = static_cast<Poll *>(handle->data)->watch;
        napi_env env = self->Env();
        Napi::HandleScope scope(env);
        napi_value result, error;
        napi_status status =
            napi_make_callback(env, nullptr, self->Value(), self->callback_.Value(), 0, nullptr, &result);
        if (status == napi_pending_exception && napi_get_and_clear_last_exception(env, &error) == napi_ok)
            napi_fatal_exception(env, error); /* as what a timer's callback throws */
    }

    Napi::FunctionReference callback_;
    Poll *poll_ = nullptr;
};

} // namespace

void backhop_export_watch(Napi::Env env, Napi::Object exports)
{
    Watch::Export(env, exports);
}
