# frozen_string_literal: true

require "set"

module Backhop
  # How a topology is declared or verified, and what the broker's refusals mean.
  #
  # The block of each takes one step: it gets a declaration, and whether only to look if it is there (passive). It gives
  # nil, or the Refusal with which the broker closed the channel, so that the next step needs a new one.
  # @api private
  module Declaring
    ACCESS_REFUSED = 403
    NOT_FOUND = 404
    PRECONDITION_FAILED = 406
    DIFFERENCE = /inequivalent arg '(?<name>[^']*)'.*: received (?<needed>.*) but current is (?<is>.*)/m

    # How the broker closed the channel, or the connection.
    Refusal = Struct.new(:code, :text)

    class << self
      # Refuses a broker that cannot serve the strategy.
      def check_broker(topology, server_properties)
        found = server_properties || {}
        topology.check_broker(found["product"].to_s, found["version"].to_s)
      end

      # Declares; by default all that is not for demand alone.
      #
      # A rung on demand, which comes last, is taken to be there where the user may not declare it: an administrator may
      # have imported it, and where none did, the broker refuses the copy.
      def create(topology, declarations = topology.declarations.reject(&:on_demand?))
        declarations.each do |declaration|
          refusal = yield declaration, false
          break if refusal&.code == ACCESS_REFUSED && declaration.on_demand?
          raise explained(topology, declaration, refusal) if refusal
        end
      end

      # Makes nothing, and raises all that is missing or different.
      def verify(topology, &take)
        Verification.new(topology, &take).call
      end

      # The error that a refusal is for the user.
      def explained(topology, declaration, refusal)
        name = declaration.name
        if declaration.type == "x-delayed-message" && refusal.text.include?("exchange type")
          return BrokerError.new("the broker does not know the exchange type x-delayed-message: enable the plugin " \
                                 "rabbitmq_delayed_message_exchange, or use the strategy ladder, which needs none")
        end
        case refusal.code
        when PRECONDITION_FAILED then ClashError.new(clash(topology, declaration, refusal))
        when NOT_FOUND then MissingError.new(missing(topology, declaration, refusal))
        when ACCESS_REFUSED
          AccessError.new("declaring \"#{name}\": #{refusal.text}; grant the permission, or import " \
                          "topology.definitions and use mode: :verify")
        else
          ChannelClosedError.new(
            %(declaring "#{name}": the broker closed the channel: #{refusal.code} #{refusal.text})
          )
        end
      end

      # RabbitMQ writes a value as 'V', as the value 'V' of type 'T', or as none. It cuts the text to 255 bytes.
      def clash(topology, declaration, refusal)
        queue = topology.queue
        choice = [queue, *own(queue)].include?(declaration.name) ? "name for the work queue" : "namespace"
        "#{declaration.what} \"#{declaration.name}\" #{difference(refusal.text)} (once it is empty and unused, " \
          "delete it and declare again, or choose another #{choice})"
      end

      private

      def missing(topology, declaration, refusal)
        if declaration.what == :binding && declaration.name == topology.queue
          "the work queue \"#{topology.queue}\" does not exist: declare it first, or have it declared with " \
            "work_queue: :quorum"
        else
          %(declaring "#{declaration.name}": #{refusal.text})
        end
      end

      def difference(text)
        found = DIFFERENCE.match(text)
        return "exists with other arguments (#{text})" unless found

        is, needed = [found[:is], found[:needed]].map { |value| value.sub(/\A[^']*'([^']*)'.*\z/m, '\1') }
        "exists with #{found[:name]} = #{is}, and #{needed} is needed"
      end

      def own(queue)
        %w[parked wait retry return].map { |suffix| "#{queue}.#{suffix}" }
      end
    end

    # Declaring what exists changes nothing, and compares its arguments. Without the permission to declare, that it exists
    # is all that can be known. A rung on demand may be missing, but not then: nobody would make it. AMQP cannot look at
    # bindings.
    class Verification
      DECLARE = "declare makes what is missing, or import topology.definitions"
      IMPORT = "import topology.definitions, or set max_retry_after: 0, which needs none"
      private_constant :DECLARE, :IMPORT

      def initialize(topology, &take)
        @topology = topology
        @take = take
        @different = []
        @missing = []
        @rungs = Set.new # on demand, and missing
        @may_declare = true
      end

      def call
        declared = @topology.declarations.reject { |declaration| declaration.what == :binding }
        declared.each { |declaration| look_at(declaration) }
        look_at_work_queue unless declared.any? { |each| each.what == :queue && each.name == @topology.queue }
        advice = @may_declare || @rungs.empty? ? DECLARE : miss_rungs
        return if @different.empty? && @missing.empty?

        found = @different
        found += ["missing: #{@missing.join(", ")}"] unless @missing.empty?
        text = [*found, advice].join("; ")
        raise @different.empty? ? MissingError.new(text) : ClashError.new(text)
      end

      private

      def look_at(declaration)
        refusal = @take.call(declaration, true)
        return miss(declaration) if refusal&.code == NOT_FOUND

        unless refusal
          refusal = @take.call(declaration, false)
          @may_declare = false if refusal&.code == ACCESS_REFUSED
        end
        case refusal&.code
        when nil, ACCESS_REFUSED then nil
        when PRECONDITION_FAILED then @different << Declaring.clash(@topology, declaration, refusal)
        else raise Declaring.explained(@topology, declaration, refusal)
        end
      end

      def miss(declaration)
        return @rungs << declaration.wait if declaration.on_demand?

        @missing << %(#{declaration.what} "#{declaration.name}")
      end

      # Gives the advice.
      def miss_rungs
        advice = @missing.empty? ? IMPORT : DECLARE
        @missing << "#{@rungs.size} rung#{"s" if @rungs.size > 1} that a handler's RetryAfter can need"
        advice
      end

      def look_at_work_queue
        queue = Declaration.new(what: :queue, name: @topology.queue)
        return unless @take.call(queue, true)&.code == NOT_FOUND

        @missing << %(the work queue "#{@topology.queue}")
      end
    end
  end
end
