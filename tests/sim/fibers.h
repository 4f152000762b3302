/* Fibers: reports to the sanitizers which stack is in use. Without them these functions do
 * nothing. */
#ifndef BACKHOP_TESTS_SIM_FIBERS_H
#define BACKHOP_TESTS_SIM_FIBERS_H

#include <stddef.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define FIBERS_OF_ASAN
#elif __has_feature(thread_sanitizer)
#define FIBERS_OF_TSAN
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define FIBERS_OF_ASAN
#elif defined(__SANITIZE_THREAD__)
#define FIBERS_OF_TSAN
#endif

/* stack: NULL is the stack of the process. */
typedef struct fiber {
    const void *stack;
    size_t size;
    void *kept; /* of the sanitizer */
} fiber;

#if defined(FIBERS_OF_ASAN)

void __sanitizer_start_switch_fiber(void **kept, const void *bottom, size_t size);
void __sanitizer_finish_switch_fiber(void *kept, const void **bottom_before, size_t *size_before);

static const void *fiber_process_stack;
static size_t fiber_process_size;
static int fiber_is_from_process;

static inline void fiber_make(fiber *self, const void *stack, size_t size)
{
    *self = (fiber){stack, size, NULL};
}

static inline void fiber_free(fiber *self)
{
    (void)self;
}

/* is_done: `from` never runs again. */
static inline void fiber_leave(fiber *from, const fiber *to, int is_done)
{
    fiber_is_from_process = !from->stack;
    __sanitizer_start_switch_fiber(is_done ? NULL : &from->kept, to->stack ? to->stack : fiber_process_stack,
                                   to->stack ? to->size : fiber_process_size);
}

static inline void fiber_enter(fiber *self)
{
    const void *stack;
    size_t size;
    __sanitizer_finish_switch_fiber(self->kept, &stack, &size);
    if (fiber_is_from_process) {
        fiber_process_stack = stack;
        fiber_process_size = size;
    }
}

#elif defined(FIBERS_OF_TSAN)

void *__tsan_get_current_fiber(void);
void *__tsan_create_fiber(unsigned flags);
void __tsan_destroy_fiber(void *fiber);
void __tsan_switch_to_fiber(void *fiber, unsigned flags);

static inline void fiber_make(fiber *self, const void *stack, size_t size)
{
    *self = (fiber){stack, size, stack ? __tsan_create_fiber(0) : __tsan_get_current_fiber()};
}

static inline void fiber_free(fiber *self)
{
    if (self->stack)
        __tsan_destroy_fiber(self->kept);
}

static inline void fiber_leave(fiber *from, const fiber *to, int is_done)
{
    (void)from, (void)is_done;
    __tsan_switch_to_fiber(to->kept, 0);
}

static inline void fiber_enter(fiber *self)
{
    (void)self;
}

#else

static inline void fiber_make(fiber *self, const void *stack, size_t size)
{
    (void)self, (void)stack, (void)size;
}

static inline void fiber_free(fiber *self)
{
    (void)self;
}

static inline void fiber_leave(fiber *from, const fiber *to, int is_done)
{
    (void)from, (void)to, (void)is_done;
}

static inline void fiber_enter(fiber *self)
{
    (void)self;
}

#endif

#endif
