// A notification service, as in the post "RabbitMQ Retries: the (new) Full Story": one exchange, a
// queue for emails and one for webhooks, a worker each. What a worker cannot deliver it rejects,
// and that is all it does about failures: when, how often and where to it is tried again is
// `backhop relay`'s (relay.yml).
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

var errUnavailable = errors.New("503 Service Unavailable")

// work handles what comes on a queue; what fails is rejected, not requeued.
func work(channel *amqp.Channel, queue string, handle func(body string) error) error {
	deliveries, err := channel.Consume(queue, "", false, false, false, false, nil)
	if err != nil {
		return err
	}
	go func() {
		for delivery := range deliveries {
			if err := handle(string(delivery.Body)); err != nil {
				log.Printf("%-14s %s: %v", queue, delivery.Body, err)
				delivery.Nack(false, false)
			} else {
				log.Printf("%-14s %s: sent", queue, delivery.Body)
				delivery.Ack(false)
			}
		}
	}()
	return nil
}

// declare makes the exchange and the queues of the post: emails in a quorum queue, webhooks in a
// classic one.
func declare(channel *amqp.Channel) error {
	if err := channel.ExchangeDeclare("notification-exchange", "fanout", true, false, false, false, nil); err != nil {
		return err
	}
	for queue, kind := range map[string]string{"email-queue": "quorum", "webhook-queue": "classic"} {
		if _, err := channel.QueueDeclare(queue, true, false, false, false, amqp.Table{"x-queue-type": kind}); err != nil {
			return err
		}
		if err := channel.QueueBind(queue, "", "notification-exchange", false, nil); err != nil {
			return err
		}
	}
	return nil
}

func publish(channel *amqp.Channel, body string) error {
	if err := channel.Confirm(false); err != nil {
		return err
	}
	confirm, err := channel.PublishWithDeferredConfirm("notification-exchange", "", true, false,
		amqp.Publishing{DeliveryMode: amqp.Persistent, Body: []byte(body)})
	if err != nil {
		return err
	}
	if !confirm.Wait() {
		return fmt.Errorf("the broker did not take %q", body)
	}
	return nil
}

// parked waits for a message that had its last attempt, and returns it.
func parked(ctx context.Context, connection *amqp.Connection, queue string) (amqp.Delivery, error) {
	for ctx.Err() == nil {
		channel, err := connection.Channel()
		if err != nil {
			return amqp.Delivery{}, err
		}
		if delivery, ok, err := channel.Get(queue, true); err == nil && ok {
			return delivery, nil
		}
		channel.Close() // and again: the queue is made with the first rejection
		time.Sleep(100 * time.Millisecond)
	}
	return amqp.Delivery{}, fmt.Errorf("nothing is in %s: %w", queue, ctx.Err())
}

func run() error {
	connection, err := amqp.Dial(os.Getenv("AMQP_URL"))
	if err != nil {
		return err
	}
	defer connection.Close()
	channel, err := connection.Channel()
	if err != nil {
		return err
	}
	if err := declare(channel); err != nil {
		return err
	}

	// The mail server is down for the first two attempts of each email; the webhook's receiver is gone
	// for good.
	attempts := map[string]int{}
	sent := make(chan string, 10)
	email := func(body string) error {
		if attempts[body]++; attempts[body] < 3 {
			return errUnavailable
		}
		sent <- body
		return nil
	}
	webhook := func(string) error { return errUnavailable }
	if err := work(channel, "email-queue", email); err != nil {
		return err
	}
	if err := work(channel, "webhook-queue", webhook); err != nil {
		return err
	}

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	publisher, err := connection.Channel()
	if err != nil {
		return err
	}
	if err := publish(publisher, "order 17 has shipped"); err != nil {
		return err
	}
	select {
	case body := <-sent:
		log.Printf("the email %q went out at its third attempt", body)
	case <-ctx.Done():
		return fmt.Errorf("no email went out: %w", ctx.Err())
	}
	last, err := parked(ctx, connection, "webhook-queue.parked")
	if err != nil {
		return err
	}
	log.Printf("the webhook %q is parked: %v after %v attempts, %v", last.Body, last.Headers["backhop-parked"],
		last.Headers["backhop-attempts"], last.Headers["backhop-error"])
	if string(last.Body) != "order 17 has shipped" || last.Headers["backhop-attempts"] != int64(5) {
		return fmt.Errorf("that is not what should be parked: %v", last.Headers)
	}
	return nil
}

func main() {
	log.SetFlags(log.Lmicroseconds)
	if err := run(); err != nil {
		log.Fatal(err)
	}
}
