import 'reflect-metadata'
import { AmqpConnection, RabbitMQModule, RabbitSubscribe } from '@golevelup/nestjs-rabbitmq'
import { BeforeApplicationShutdown, Injectable, Module, OnModuleInit } from '@nestjs/common'
import { NestFactory } from '@nestjs/core'
import { Policy } from 'backhop'
import { Retrier } from 'backhop/amqplib'

const url = process.env.AMQP_URL ?? 'amqp://localhost'
const queue = process.env.QUEUE ?? 'cdn-purge'
const retrier = new Retrier(null, { // each message brings its channel
  queue,
  policy: new Policy({ initial: '1s', maxAttempts: 3 }),
  workQueue: 'quorum'
})

@Injectable()
class Purges implements OnModuleInit, BeforeApplicationShutdown {
  private calls = 0

  constructor (private readonly connection: AmqpConnection) {}

  async onModuleInit () {
    await retrier.declare(this.connection.channel) // before golevelup consumes the queue
  }

  @RabbitSubscribe({ queue, createQueueIfNotExists: false, errorHandler: retrier.errorHandler() })
  async purge (path: string) {
    console.log(`attempt ${++this.calls}: ${path}`)
    if (this.calls < 3) throw new Error('507 queue is full')
  }

  async beforeApplicationShutdown () {
    await retrier.drain({ timeout: '20s' })
  }
}

@Module({ imports: [RabbitMQModule.forRoot({ uri: url, prefetchCount: 10 })], providers: [Purges] })
class Application {}

async function main () {
  const application = await NestFactory.createApplicationContext(Application, { logger: ['fatal'] })
  application.enableShutdownHooks(['SIGTERM'], { useProcessExit: true })
}

main()
