// Experiments: what the arms differ in, with intervals. A difference counts where its interval leaves zero out.
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import type { ArmDifference, ExperimentReport, ExperimentRow } from "../client.ts";
import { Empty, Loaded, useLoaded } from "../parts/loaded.tsx";
import { useShared } from "../state.ts";
import { bytes, compact, count, moment, percent, plural, seconds } from "../words.ts";

export function Windows(): JSX.Element {
  const { api } = useShared();
  const [chosen, set_chosen] = useState<string>();
  const names = useLoaded(() => api.experiments(), []);
  return (
    <div class="page">
      <header class="page-head">
        <h1>Windows</h1>
        <p>Presets compared on what you really say: is a longer window worth its wait?</p>
      </header>
      <Loaded of={names}>
        {({ data, configured }) => {
          const name = chosen ?? (configured && data.includes(configured) ? configured : data[0]);
          if (!name) {
            const text = configured
              ? `The experiment “${configured}” runs, and no turn was measured yet. Talk, and come back.`
              : "No experiment has run. Name presets in [experiment] of reprise.toml, and the service draws for each new conversation which one it gets.";
            return <Empty title="Nothing to compare yet" text={text} />;
          }
          return (
            <>
              {data.length > 1 && (
                <label class="field inline">
                  <span>Experiment</span>
                  <select value={name} onChange={(event) => set_chosen(event.currentTarget.value)}>
                    {data.map((name) => (
                      <option key={name}>{name}</option>
                    ))}
                  </select>
                </label>
              )}
              <Report key={name} name={name} />
            </>
          );
        }}
      </Loaded>
    </div>
  );
}

function Report({ name }: { name: string }): JSX.Element {
  const { api } = useShared();
  return <Loaded of={useLoaded(() => api.experiment(name), [name])}>{(report) => <Arms report={report} />}</Loaded>;
}

const UNITS: Record<ExperimentReport["unit"], string> = {
  users: "users",
  sessions: "conversations",
  pairs: "blocks of turns",
  own_sessions: "conversations of the same user",
  own_days: "days of the same user",
};

function Arms({ report }: { report: ExperimentReport }): JSX.Element {
  const [first, ...others] = report.arms;
  return (
    <>
      {report.warnings.length > 0 && (
        <ul class="warning">
          {report.warnings.map((text) => (
            <li key={text}>{text}.</li>
          ))}
        </ul>
      )}
      <section class="card" aria-labelledby="traffic-title">
        <div class="card-head">
          <h2 id="traffic-title">{report.name}</h2>
          <span class="quiet-text">
            {plural(report.turns, "turn")}
            {report.from_ms && report.to_ms ? `, ${moment(report.from_ms)} to ${moment(report.to_ms)}` : ""}
          </span>
        </div>
        <ul class="lines">
          {report.arms.map((arm, at) => {
            const { users, sessions, turns } = report.traffic[at] ?? { users: 0, sessions: 0, turns: 0 };
            return (
              <li key={arm}>
                <span class={`dot arm-${at}`} />
                <strong class="grow">{arm}</strong>
                <span class="quiet-text number">
                  {plural(users, "user")}, {plural(sessions, "conversation")}, {plural(turns, "turn")}
                </span>
              </li>
            );
          })}
        </ul>
      </section>
      {others.map((arm, at) => (
        <section key={arm} class="card" aria-labelledby={`arm-${at}`}>
          <div class="card-head">
            <h2 id={`arm-${at}`}>
              {arm} beside {first}
            </h2>
            <span class="quiet-text">all intervals hold together in {Math.round(report.level * 100)} of 100 comparisons, by {UNITS[report.unit]}</span>
          </div>
          <table class="intervals">
            <thead>
              <tr>
                <th scope="col">What</th>
                <th scope="col">{first}</th>
                <th scope="col">{arm}</th>
                <th scope="col" class="wide-only">Difference and its interval</th>
                <th scope="col">Finding</th>
              </tr>
            </thead>
            <tbody>
              {report.rows.map((row) => (
                <RowOf key={row.metric} row={row} arm={at + 1} />
              ))}
            </tbody>
          </table>
        </section>
      ))}
    </>
  );
}

function value(row: ExperimentRow, number: number | undefined): string {
  if (number === undefined) return "–";
  switch (row.unit) {
    case "ms":
      return seconds(number);
    case "bytes":
      return bytes(number);
    case "share":
      return percent(number);
    case "times":
      return number.toFixed(2);
    default:
      return Math.abs(number) < 100 ? compact(number) : count(number);
  }
}

const VERDICTS = { too_few: "too few to tell", no_difference_shown: "no difference shown", higher: "higher", lower: "lower" };

function RowOf({ row, arm }: { row: ExperimentRow; arm: number }): JSX.Element {
  const of = (at: number) => value(row, row.cells[at]?.[row.statistic]);
  const difference = row.differences[arm - 1];
  const is_found = difference?.verdict === "higher" || difference?.verdict === "lower";
  const is_good = is_found && row.better !== "neither" && difference.verdict === row.better;
  const is_bad = is_found && row.better !== "neither" && !is_good;
  return (
    <tr>
      <th scope="row">{row.words}</th>
      <td class="number">{of(0)}</td>
      <td class="number">{of(arm)}</td>
      <td class="wide-only">{difference && <Interval row={row} difference={difference} />}</td>
      <td class={is_good ? "good" : is_bad ? "bad" : "quiet-text"}>
        {difference ? VERDICTS[difference.verdict] : "–"}
        {is_found && difference.relative !== null && <span class="number"> ({percent(difference.relative)})</span>}
      </td>
    </tr>
  );
}

/** A line from the low to the high end, with zero in the middle of the plot. */
function Interval({ row, difference: { low, estimate, high } }: { row: ExperimentRow; difference: ArmDifference }): JSX.Element {
  const reach = Math.max(Math.abs(low), Math.abs(high), Number.MIN_VALUE) * 1.1;
  const x = (number: number) => 100 + (number / reach) * 96;
  const words = `${value(row, estimate)}, from ${value(row, low)} to ${value(row, high)}`;
  return (
    <svg class="interval" viewBox="0 0 200 24" role="img" aria-label={words}>
      <title>{words}</title>
      <line x1="100" x2="100" y1="2" y2="22" class="axis" />
      <line x1={x(low)} x2={x(high)} y1="12" y2="12" class="reach" />
      <line x1={x(low)} x2={x(low)} y1="8" y2="16" class="reach" />
      <line x1={x(high)} x2={x(high)} y1="8" y2="16" class="reach" />
      <circle cx={x(estimate)} cy="12" r="4" />
    </svg>
  );
}
