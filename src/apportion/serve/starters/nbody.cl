// Forces between all pairs of bodies: much arithmetic for few bytes.
__kernel void nbody(__global const float4* position, __global float4* force, const int n)
{
    int i = get_global_id(0);
    float4 here = position[i];
    float3 sum = (float3)(0.0f);
    for (int j = 0; j < n; j++) {
        float3 to = position[j].xyz - here.xyz;
        float square = dot(to, to) + 1e-6f;
        float inverse = rsqrt(square);
        sum += to * (position[j].w * inverse * inverse * inverse);
    }
    force[i] = (float4)(sum, 0.0f);
}
