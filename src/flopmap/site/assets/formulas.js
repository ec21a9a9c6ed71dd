// The arithmetic of formulas, with Python's rules: what has no finite value there is NaN here.
"use strict";
const flopmap = (() => {
  const strict = (operation) => (...operands) => {
    const value = operands.every(Number.isFinite) ? Number(operation(...operands)) : NaN;
    return Number.isFinite(value) ? value : NaN;
  };
  // the remainder has the divisor's sign, and the quotient belongs to it
  const mod = (a, b) => {
    const rest = a % b;
    return rest !== 0 && rest < 0 !== b < 0 ? rest + b : rest;
  };
  const whole = (a, b) => (b === 0 ? NaN : Math.round((a - mod(a, b)) / b));
  const operations = {
    div: (a, b) => a / b,
    whole,
    mod,
    pow: (a, b) => a ** b,
    min: Math.min,
    max: Math.max,
    ceil: Math.ceil,
    floor: Math.floor,
    sqrt: Math.sqrt,
    log2: Math.log2,
    where: (condition, yes, no) => (condition ? yes : no),
    lt: (a, b) => a < b,
    le: (a, b) => a <= b,
    gt: (a, b) => a > b,
    ge: (a, b) => a >= b,
    eq: (a, b) => a === b,
    ne: (a, b) => a !== b,
  };
  const F = Object.fromEntries(Object.entries(operations).map(([name, operation]) => [name, strict(operation)]));

  // A record's formulas in their order, each over the symbols and the names before it; `chosen` are conventions.
  function evaluate(record, symbols, chosen) {
    const known = { ...symbols };
    for (const name of record.order) {
      let formula = record.formulas[name];
      for (const [convention, choice] of Object.entries(chosen)) {
        formula = record.readings[convention]?.[choice]?.[name] ?? formula;
      }
      if (formula) known[name] = formula(known, F);
    }
    return known;
  }
  return { F, evaluate, record: null, index: null };
})();
