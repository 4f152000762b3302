import 'reflect-metadata'
import { BeforeApplicationShutdown, CallHandler, Controller, ExecutionContext } from '@nestjs/common'
import { Module, NestInterceptor, UseInterceptors } from '@nestjs/common'
import { NestFactory } from '@nestjs/core'
import { EventPattern, MicroserviceOptions, Payload, RmqContext, Transport } from '@nestjs/microservices'
import * as amqplib from 'amqplib'
import { Policy } from 'backhop'
import { Retrier } from 'backhop/amqplib'
import { EMPTY, lastValueFrom } from 'rxjs'

const url = process.env.AMQP_URL ?? 'amqp://localhost'
const queue = process.env.QUEUE ?? 'cdn-purge'
const retrier = new Retrier(null, { // each message brings its channel
  queue,
  policy: new Policy({ initial: '1s', maxAttempts: 3 }),
  workQueue: 'quorum',
  workQueueArguments: { // what Nest rejects is parked
    'x-dead-letter-exchange': '',
    'x-dead-letter-routing-key': `${queue}.parked`
  }
})

class Retries implements NestInterceptor {
  async intercept (context: ExecutionContext, next: CallHandler) {
    const delivery = context.switchToRpc().getContext<RmqContext>()
    const message = retrier.read(delivery.getMessage(), delivery.getChannelRef())
    console.log(`attempt ${message.attempt}: ${message.body}`)
    try {
      await retrier.handle(message, () => lastValueFrom(next.handle(), { defaultValue: undefined }))
      retrier.settle(message)
    } catch (error) {
      retrier.settle(message, error)
    }
    return EMPTY
  }
}

@Controller()
@UseInterceptors(Retries)
class Purges implements BeforeApplicationShutdown {
  private calls = 0

  @EventPattern('purge')
  async purge (@Payload() path: string) {
    if (++this.calls < 3) throw new Error(`507 queue is full, not purged: ${path}`)
  }

  async beforeApplicationShutdown () {
    await retrier.drain({ timeout: '20s' })
  }
}

@Module({ controllers: [Purges] })
class Application {}

async function main () {
  const connection = await amqplib.connect(url)
  await retrier.declare(await connection.createChannel()) // before Nest consumes the queue
  await connection.close()
  const application = await NestFactory.createMicroservice<MicroserviceOptions>(Application, {
    logger: ['error', 'warn'],
    transport: Transport.RMQ,
    options: { urls: [url], queue, noAssert: true, noAck: false, prefetchCount: 10 }
  })
  application.enableShutdownHooks(['SIGTERM'], { useProcessExit: true })
  await application.listen()
}

main()
