# frozen_string_literal: true

module Backhop
  # Helpers to call the core's functions, which SWIG wraps in Native.
  # @api private
  module Core
    module_function

    # Returns the object that a bh_<noun>_new made, or raises its status.
    #
    # @param result [Array(Integer, Object)]
    # @param detail [String] as {Status.error}
    # @param only [Class] as {Status.error}
    def made(result, detail = "", only = Error)
      status, native = result
      Status.check(status, detail, only)
      native
    end

    # Returns an enumeration of the core: BH_QUEUE_CLASSIC is :classic of "BH_QUEUE_".
    #
    # @param others [Array<Symbol>] names to leave out, besides :last, which only counts
    def numbers(prefix, *others)
      names = Native.constants.select { |name| name.start_with?(prefix) }
      names.to_h { |name| [name.to_s.delete_prefix(prefix).downcase.to_sym, Native.const_get(name)] }
           .except(:last, *others).freeze
    end

    # Returns the names of an enumeration by the core's numbers.
    def names(prefix, *others) = numbers(prefix, *others).invert.freeze

    # Returns the core's number for a name, or raises `error` if there is no such name.
    def number(names, name, what, error = InvalidArgumentError)
      names.fetch(name) do
        raise error, "#{what} is #{Text.shown(name)}: give one of #{names.keys.map(&:inspect).join(", ")}"
      end
    end

    # Returns a text of the core; nil for "".
    def text(text) = text.empty? ? nil : text
  end
  private_constant :Core
end
