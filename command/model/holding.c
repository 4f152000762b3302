/* Holding: an array by tag, which only grows at its end, with gaps where something was settled. */
#include "model/holding.h"

#include "model/queue.h"

#include <stdlib.h>

int model_holding_reserve(model_channel *channel)
{
    if (channel->held_begin > 0 && channel->held_end == channel->held_capacity) {
        size_t count = channel->held_end - channel->held_begin;
        if (channel->held_begin >= count) {
            memmove(channel->held, channel->held + channel->held_begin, count * sizeof *channel->held);
            channel->held_begin = 0;
            channel->held_end = count;
            return 1;
        }
    }
    void *held = channel->held;
    int is_there = bh__reserve(&held, &channel->held_capacity, sizeof *channel->held, channel->held_end + 1);
    channel->held = held;
    return is_there;
}

void model_holding_add(model_channel *channel, model_entry *entry, model_consumer *consumer)
{
    model *broker = channel->link->broker;
    entry->holder = channel;
    entry->consumer = consumer;
    entry->tag = channel->next_tag;
    entry->delivered_ms = broker->now_ms;
    model_list_append(&entry->queue->unacked, entry);
    channel->held[channel->held_end++] = (model_held){entry->tag, entry};
    broker->unacked_count++;
    entry->is_got = !consumer && entry->queue->is_quorum;
    entry->queue->got_count += (size_t)entry->is_got;
    if (consumer) {
        consumer->held++;
        channel->consumed++;
    }
}

int64_t model_holding_find(const model_channel *channel, uint64_t tag)
{
    size_t low = channel->held_begin, high = channel->held_end;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (channel->held[middle].tag < tag)
            low = middle + 1;
        else
            high = middle;
    }
    int is_there = low < channel->held_end && channel->held[low].tag == tag && channel->held[low].entry;
    return is_there ? (int64_t)low : -1;
}

model_entry *model_holding_entry(const model_channel *channel, uint64_t tag)
{
    int64_t place = model_holding_find(channel, tag);
    return place < 0 ? NULL : channel->held[place].entry;
}

/* A consumer has one less in hand. */
static void release(model_channel *channel, model_entry *entry)
{
    model_consumer *consumer = entry->consumer;
    if (!consumer)
        return;
    if (entry->message) {
        consumer->held--;
        channel->consumed--;
    } else {
        consumer->timed_out--;
    }
    model_queue_touch(consumer->queue);
}

model_entry *model_holding_take(model_channel *channel, size_t place)
{
    model_entry *entry = channel->held[place].entry;
    channel->held[place].entry = NULL;
    while (channel->held_begin < channel->held_end && !channel->held[channel->held_begin].entry)
        channel->held_begin++;
    if (channel->held_begin == channel->held_end)
        channel->held_begin = channel->held_end = 0;
    if (entry->message)
        channel->link->broker->unacked_count--;
    release(channel, entry);
    if (entry->queue) {
        model_list_remove(&entry->queue->unacked, entry);
        entry->queue->got_count -= (size_t)entry->is_got;
    }
    return entry;
}

/* Takes the entry, and leaves a mark in its place, so that its tag stays valid. Returns NULL if it
 * cannot. */
static model_entry *leave_mark(model_channel *channel, model_entry *entry)
{
    int64_t place = model_holding_find(channel, entry->tag);
    model_entry *mark = calloc(1, sizeof *mark);
    if (place < 0 || !mark) {
        free(mark);
        return NULL;
    }
    channel->held[place].entry = mark;
    channel->link->broker->unacked_count--;
    mark->tag = entry->tag;
    mark->holder = channel;
    release(channel, entry);
    model_list_remove(&entry->queue->unacked, entry);
    return mark;
}

int model_holding_time_out(model_channel *channel, model_entry *entry)
{
    model_consumer *consumer = entry->consumer;
    model_entry *mark = leave_mark(channel, entry);
    if (!mark)
        return 0;
    mark->consumer = consumer;
    if (consumer)
        consumer->timed_out++;
    return 1;
}

int model_holding_forsake(model_channel *channel, model_entry *entry)
{
    return leave_mark(channel, entry) != NULL;
}

void model_holding_forget(model_channel *channel, const model_consumer *consumer)
{
    for (size_t i = channel->held_begin; i < channel->held_end; i++) {
        model_entry *entry = channel->held[i].entry;
        if (!entry || entry->consumer != consumer)
            continue;
        if (entry->message)
            channel->consumed--;
        entry->consumer = NULL;
    }
}
