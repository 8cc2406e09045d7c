/** Which devices a program can use. */

import { quote, refuse } from "./errors";
import type { GraphFunction, Program, Requirements, Variant } from "./format";

/** What an adapter or a device has. */
export interface Has {
  readonly features: ReadonlySet<string>;
  readonly limits: GPUSupportedLimits;
  readonly info?: GPUAdapterInfo;
  readonly language: ReadonlySet<string>;
}

const ALIGNMENT = "minStorageBufferOffsetAlignment";

function limitOf(has: Has, name: string): number | undefined {
  const value = (has.limits as unknown as Record<string, unknown>)[name];
  return typeof value === "number" ? value : undefined;
}

/** What `has` lacks, in words. */
function missing(requires: Requirements, has: Has): string[] {
  const lacks: string[] = [];
  for (const name of requires.features ?? []) {
    if (!has.features.has(name)) {
      lacks.push(`the feature ${quote(name)}`);
    }
  }
  for (const name of requires.language_features ?? []) {
    if (!has.language.has(name)) {
      lacks.push(`the WGSL language feature ${quote(name)}`);
    }
  }
  for (const [name, wanted] of requires.limits ?? []) {
    const value = limitOf(has, name);
    if (value === undefined) {
      lacks.push(`the limit ${quote(name)}, which is not known here`);
    } else if (name === ALIGNMENT ? value > wanted : value < wanted) {
      lacks.push(`${name} of ${wanted} (the device has ${value})`);
    }
  }
  if (requires.software === true && has.info?.isFallbackAdapter !== true) {
    lacks.push("an adapter that computes on cores of a CPU");
  }
  if (requires.subgroup_size !== undefined) {
    const [least, most] = requires.subgroup_size;
    const { subgroupMinSize = 0, subgroupMaxSize = Infinity } = has.info ?? {};
    if (subgroupMinSize < least || subgroupMaxSize > most) {
      lacks.push(`subgroups of ${least} to ${most} invocations`);
    }
  }
  return lacks;
}

/** The first variant of a function whose requirements are met. */
function choose(name: string, graph: GraphFunction, has: Has): Variant {
  const refused: string[] = [];
  for (const variant of graph.variants) {
    const lacks = missing(variant.requires, has);
    if (lacks.length === 0) {
      return variant;
    }
    refused.push(lacks.join(" and "));
  }
  return refuse(
    `this device cannot execute ${quote(name)}: it requires ` +
      (refused.length > 0 ? refused.join(", or ") : "a variant"),
  );
}

export function chooseVariants(program: Program, has: Has): Map<string, Variant> {
  return new Map([...program.functions].map(([name, f]) => [name, choose(name, f, has)]));
}

/** What to ask an adapter for, so that its device can execute all of these. */
export function descriptorOf(variants: Iterable<Variant>): GPUDeviceDescriptor {
  const features = new Set<string>();
  const limits: Record<string, number> = {};
  for (const { requires } of variants) {
    for (const name of requires.features ?? []) {
      features.add(name);
    }
    for (const [name, value] of requires.limits ?? []) {
      const least = name === ALIGNMENT;
      const other = limits[name] ?? value;
      limits[name] = least ? Math.min(other, value) : Math.max(other, value);
    }
  }
  return {
    label: "torch-webgpu player",
    requiredFeatures: [...features] as GPUFeatureName[],
    requiredLimits: limits,
  };
}
