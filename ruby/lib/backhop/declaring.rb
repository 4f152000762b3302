# frozen_string_literal: true

module Backhop
  # How a topology is declared or verified, step by step, and what the broker's refusals mean: the core tells it.
  #
  # The block takes one step: it gets what to declare, as a {Declaration}, and whether only to look if it is there (passive).
  # It gives nil, or the Refusal with which the broker closed the channel, so that the next step needs a new one.
  # @api private
  class Declaring
    MODES = { create: Native::BH_MODE_CREATE, verify: Native::BH_MODE_VERIFY, none: Native::BH_MODE_NONE }.freeze
    DIALECTS = %i[c python ruby node].freeze
    private_constant :MODES, :DIALECTS

    # How the broker closed the channel, or the connection.
    Refusal = Struct.new(:code, :text)

    # Whether a rung on demand is made by this mode as a message needs it.
    def self.makes_rungs?(mode) = Native.bh_mode_makes_rungs(MODES.fetch(mode)) == 1

    # @param makes_rungs [Boolean] whether rungs on demand may be missing when verifying, as they are made later
    # @param declared [Native::Declared, nil] what is known to be there: it is left out, and what is made is added
    # @param dialect [Symbol] whose words the errors have, as the vectors name it
    def initialize(topology, makes_rungs: true, declared: nil, dialect: :ruby)
      @native = Core.made(Native.bh_declaring_new(topology.native, DIALECTS.index(dialect)))
      Status.check(@native.set_makes_rungs(makes_rungs ? 1 : 0))
      Status.check(@native.set_declared(declared)) if declared
    end

    # Makes the topology, or a rung of it alone (:create), and raises the first refusal; makes nothing, and raises all that is
    # missing or different (:verify).
    def carry_out(mode, rung_ms = 0)
      Status.check(@native.begin(MODES.fetch(mode), rung_ms))
      while @native.next == 1
        refusal = yield step, @native.passive == 1
        @native.refuse(refusal.code, refusal.text) if refusal
      end
      Status.check(@native.status, @native.error)
    end

    # What is wrong with how the topology is used, once all was declared, in the core's words.
    #
    # @yieldparam native [Native::Declaring] to be asked, as by refuse_consumer
    # @return [Error, nil] nil for nothing
    def diagnosis
      yield @native
      Status.error(@native.status, @native.error) unless @native.status.zero?
    end

    private

    def step
      Declaration.new(what: Topology::WHATS.fetch(@native.what), name: @native.name, type: @native.type,
                      source: @native.source, routing_key: @native.routing_key,
                      arguments: Array.new(@native.argument_count) { |index| argument(index) }.to_h)
    end

    def argument(index)
      is_integer = @native.argument_type(index) == Native::BH_TYPE_INT64
      [@native.argument_name(index), is_integer ? @native.argument_int(index) : @native.argument_string(index)]
    end
  end
end
