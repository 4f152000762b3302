# frozen_string_literal: true

module Backhop
  # How the core is called: what SWIG made of it, in Native.
  # @api private
  module Core
    module_function

    # What a bh_<noun>_new made. Further arguments as Status.error's.
    def made(result, detail = "", only = Error)
      status, native = result
      Status.check(status, detail, only)
      native
    end

    # The core's number for a name.
    def number(names, name, what, error = InvalidArgumentError)
      names.fetch(name) do
        raise error, "#{what} is #{Values.shown(name)}: give one of #{names.keys.map(&:inspect).join(", ")}"
      end
    end

    # A text of the core; nil for "".
    def text(text) = text.empty? ? nil : text
  end
  private_constant :Core
end

Backhop.send(:private_constant, :Native) # made by SWIG, which YARD does not see
