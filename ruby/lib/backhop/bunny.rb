# frozen_string_literal: true

require "bigdecimal" # without it Bunny closes its connection if a header contains a decimal
require "bunny"
require "weakref"

require_relative "../backhop"
require_relative "bunny/calls"
require_relative "bunny/channel_watch"
require_relative "bunny/channels"
require_relative "bunny/confirm_channel"
require_relative "bunny/consuming"
require_relative "bunny/copy"
require_relative "bunny/declarer"
require_relative "bunny/earlier_calls"
require_relative "bunny/gate"
require_relative "bunny/intake"
require_relative "bunny/message"
require_relative "bunny/original"
require_relative "bunny/publisher"
require_relative "bunny/silence"
require_relative "bunny/publisher_thread"
require_relative "bunny/replay"
require_relative "bunny/retrier"
require_relative "bunny/subscription"
require_relative "bunny/watch"

module Backhop
  # Retries with Bunny, from 2.19 up to and without 4.
  #
  #     require "backhop/bunny"
  #
  #     retrier = Backhop::Bunny::Retrier.new(channel, queue: "cdn-purge", policy: policy)
  #     retrier.subscribe { |message| purge(message.body) }.wait
  #     # returns: ack; raises: retry; raises Backhop::Park: park
  #
  # The retrier publishes on a confirm channel of its own, on the connection of your channel. Your
  # channel stays unchanged. The retrier acknowledges a failed message after the broker confirmed
  # its copy. Confirms are pipelined: no handler waits for one, and a burst of failures costs one
  # round trip.
  #
  # Bunny loses these details of headers; the worker keeps all of them:
  #
  # - the width of integers and floats
  # - negative 32-bit integers, which Bunny reads as positive
  # - decimals, which become doubles in the copy
  # - values of less than four bytes at the end of an array
  #
  # A header of a type that Bunny cannot read closes its connection.
  module Bunny
    # Backhop was not tested with the loaded version of Bunny.
    class VersionError < Error; end

    # The first supported version of Bunny, and the first one after it that is not supported.
    VERSIONS = ["2.19", "4"].freeze

    # Raises VersionError if the version is not supported.
    # @api private
    def self.check_version(version = ::Bunny::VERSION)
      least, over = VERSIONS.map { |each| Gem::Version.new(each) }
      return if Gem::Version.new(version).then { |found| found >= least && found.release < over }

      raise VersionError,
            "Bunny #{version} is loaded, and Backhop #{Backhop::VERSION} works with Bunny from #{least} on and " \
            "below #{over}: have your Gemfile say gem \"bunny\", \">= #{least}\", \"< #{over}\""
    end

    check_version
  end
end
