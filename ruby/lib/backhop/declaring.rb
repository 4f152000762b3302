# frozen_string_literal: true

module Backhop
  # Declares or verifies a topology step by step. The core decides the steps and explains the
  # broker's refusals.
  #
  # The block executes one step: it gets a {Declaration} and an action: +:declare+, +:find+ (to
  # declare passively) or +:unbind+. It returns nil, or a Refusal if the broker closed the channel.
  # The next step needs a new channel then.
  # @api private
  class Declaring
    MODES = Core.numbers("BH_MODE_")
    DIALECTS = %i[c python ruby node].freeze
    private_constant :MODES, :DIALECTS

    # The broker's reply code and text for a closed channel or connection.
    Refusal = Struct.new(:code, :text)

    # Returns true if this mode declares a rung on demand when a message needs it.
    def self.makes_rungs?(mode) = Native.bh_mode_makes_rungs(MODES.fetch(mode)) == 1

    # Returns true if retries come back after a look in this mode.
    #
    # @param error [Error, nil] the result of {#look}
    def self.returns_after?(mode, error)
      Native.bh_replay_after_look(MODES.fetch(mode), error ? error.status : 0) == 1
    end

    # Returns the text of the event +:replayed+ after a look in this mode, when retries came back by
    # themselves.
    def self.return_text(mode) = Core.text(Native.bh_replay_unroutable_text(MODES.fetch(mode)))

    # @param makes_rungs [Boolean] whether rungs on demand may be missing in mode :verify, since
    #   they are declared later
    # @param declared [Native::Declared, nil] known parts, which are skipped; declared parts are
    #   added
    # @param dialect [Symbol] the language whose names the error texts use: :c, :python, :ruby or
    #   :node
    def initialize(topology, makes_rungs: true, declared: nil, dialect: :ruby)
      @native = Core.made(Native.bh_declaring_new(topology.native, DIALECTS.index(dialect)))
      Status.check(@native.set_makes_rungs(makes_rungs ? 1 : 0))
      Status.check(@native.set_declared(declared)) if declared
    end

    # Declares the topology, or only one rung of it (mode :create), and raises the first refusal. In
    # mode :verify it changes nothing, and raises one error for all that is missing or different.
    #
    # @param rung_ms [Integer] the rung to declare; 0: all
    def run(mode, rung_ms = 0, &execute)
      Status.check(@native.begin(MODES.fetch(mode), rung_ms))
      execute_steps(&execute)
      Status.check(@native.status, @native.error)
    end

    # Looks for the return exchange, without which no retry comes back. In mode :create it binds the
    # work queue to the exchange again, and declares the topology if the exchange is missing.
    #
    # @return [Error, nil] the error of the event :unavailable; nil if retries come back
    def look(mode, &execute)
      Status.check(@native.look(MODES.fetch(mode)))
      execute_steps(&execute)
      error
    end

    # Returns the core's error for a refusal after all was declared, or for a wrong use of the topology.
    #
    # @param refusal [Symbol] :consumer, :replay, :settling, :no_ack or :queue
    # @param of [String] what the refusal is about: see bh_refusal
    # @return [Error, nil] nil if nothing is wrong
    def diagnosis(refusal, code = 0, text = "", of: "")
      @native.explain(Native.const_get("BH_REFUSAL_#{refusal.upcase}"), code, text, of)
      error
    end

    private

    def action_of(step)
      return :find if step[7] == 1

      step[8] == 1 ? :unbind : :declare
    end

    def execute_steps
      while (step = @native.next).first != Native::BH_DECLARE_NONE
        refusal = yield Topology.declaration(step), action_of(step)
        @native.refuse(refusal.code, refusal.text) if refusal
      end
    end

    def error = @native.status.zero? ? nil : Status.error(@native.status, @native.error)
  end
end
